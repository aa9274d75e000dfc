"""Trying a model's inputs until it runs: each error says what to try next."""

from __future__ import annotations

import heapq
import itertools
import math
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from normula.formula.errors import nearest
from normula.torch.sources.ask import Ask
from normula.torch.sources.errors import SourceError, first_line
from normula.torch.sources.guess import Guess
from normula.torch.sources.meta import Affirming
from normula.torch.sources.repair import candidates

Asks = Mapping[str, Ask]
TRIES = 30
"""Forwards that are tried before giving up."""
SECONDS = 10.0
"""How long inputs are looked for."""
FACTORY = "a function that returns the model and its inputs can be passed as package.module:function"
SAME = 8
"""How often a model may say the same before nothing is expected of other inputs."""
LARGEST_INPUT = 1 << 23
"""Numbers in one input: a few large images, or a short film."""
LARGEST_REAL = 50_000_000
"""Parameters of a model that is made with its weights; larger ones are made on meta tensors."""


class CannotGuess(Exception):  # noqa: N818 - the caller says what to do about it
    """No inputs were found; the message is the first error of the model."""

    def __init__(self, error: BaseException, asks: Asks) -> None:
        super().__init__(first_line(error))
        self.asks = asks


class Hopeless(SourceError):  # noqa: N818 - a SourceError by its base
    """What no other size of the model would set right."""


def fitted(
    guess: Guess, asks: Mapping[str, Ask], given: Mapping[str, Ask], *, seconds: float = SECONDS
) -> dict[str, Ask]:
    """Inputs with which a model runs, found from some to begin with and those that a user fixed.

    Raises:
        SourceError: a user's input that the model does not take, or inputs that cannot be guessed.
    """
    name = type(guess.model).__name__
    if type(guess.model).forward is nn.Module.forward:
        raise Hopeless(f"{name} has no forward to run; pass the type of one of its parts")
    if objects := [word for word in guess.takes.required if word in guess.takes.objects]:
        raise Hopeless(f"{name} needs {objects[0]}, which is no tensor; {FACTORY}")
    unknown = set(given) - set(guess.takes.names)
    if unknown and guess.takes.names:  # a **kwargs beside them would swallow a slip of the pen
        word = sorted(unknown)[0]
        raise Hopeless(
            f"{name} takes no input {word!r}{nearest(word, guess.takes.names)}; it takes {', '.join(guess.takes.names)}"
        )
    try:
        return fit(guess, asks, given, seconds=seconds)
    except CannotGuess as error:
        tried = ", ".join(f"{word}={'x'.join(map(str, ask.shape))}" for word, ask in error.asks.items())
        raise SourceError(
            f"the inputs of {name} cannot be guessed (with {tried}: {error}); "
            f"pass them as --input name=shape; it takes {', '.join(guess.takes.names)}; {FACTORY}"
        ) from None


def fit(guess: Guess, asks: Asks, given: Asks, *, tries: int = TRIES, seconds: float = SECONDS) -> dict[str, Ask]:
    """Inputs with which a forward runs.

    Args:
        guess: of the model.
        asks: to begin with.
        given: what the user said, as it stays.
        tries: how many forwards at most.
        seconds: how long at most, apart from the last forward.

    Raises:
        CannotGuess: none were found; it carries the error of the first try that got furthest.
    """
    start = {**asks, **given}
    waiting: list[tuple[int, int, dict[str, Ask]]] = [(0, 0, start)]
    seen, count = {repr(start)}, itertools.count(1)
    deadline = time.monotonic() + seconds
    first: CannotGuess | None = None
    said = Counter[str]()
    while waiting and tries > 0 and (first is None or time.monotonic() < deadline):
        cost, _, now = heapq.heappop(waiting)
        tries -= 1
        try:
            forward(guess.model, now)
        except Exception as error:  # whatever a foreign model raises
            first = first or CannotGuess(error, now)
            said[first_line(error)] += 1
            if said[first_line(error)] > SAME:
                break
            for rank, found in enumerate(candidates(error, guess, now, set(given))):
                if (new := {**found, **given}) and repr(new) not in seen and _fits_in_memory(new):
                    seen.add(repr(new))
                    heapq.heappush(waiting, (cost + rank + 1, next(count), new))
        else:
            return now
    assert first is not None
    raise first


def _fits_in_memory(asks: Asks) -> bool:
    return all(math.prod(ask.shape) <= LARGEST_INPUT for ask in asks.values())


def forward(model: Any, asks: Asks) -> Any:
    """One forward, without gradients; torch's global random state is left as it was."""
    with warnings.catch_warnings(), Affirming() if _is_meta(model) else nullcontext():
        warnings.simplefilter("ignore")  # of a try nobody asked for
        return called(model, (), tensors(asks, model))


def called(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The same with arguments as they are."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(*args, **kwargs)


def tensors(asks: Asks, model: Any) -> dict[str, torch.Tensor]:
    """The inputs as tensors on a model's device, each drawn from a seed of its own."""
    device = "meta" if _is_meta(model) else next((str(one.device) for one in model.parameters()), "cpu")
    return {name: ask.tensor(seed, device) for seed, (name, ask) in enumerate(asks.items())}


def _is_meta(model: Any) -> bool:
    return any(parameter.is_meta for parameter in model.parameters())


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(parameter.numel() for parameter in model.parameters())
