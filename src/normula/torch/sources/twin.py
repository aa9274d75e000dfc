"""The smallest model of a config's structure that runs, with inputs that it runs with."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from normula.torch.sources.ask import Ask
from normula.torch.sources.errors import SourceError
from normula.torch.sources.guess import Guess
from normula.torch.sources.make import make, plain
from normula.torch.sources.mend import mended
from normula.torch.sources.shrink import Scale, scales, shrink
from normula.torch.sources.trying import CannotGuess, Hopeless, fit, fitted, parameters

LARGEST_TWIN = 350_000_000
"""Parameters of a twin; more is not worth the memory (1.4 GB) just to learn what a model takes."""
SECONDS = 30.0
"""How long a twin that runs is looked for."""
MENDINGS = 4
"""How often a config is set right by what its model says."""
RICHER_TRIES, RICHER_SECONDS, LARGEST_RICHER = 10, 4.0, 1 << 20
"""How long an image or a sound is tried beside a text, and how many numbers it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A model, the inputs that it runs with, and what was done to get there.

    Attributes:
        config: of the model.
        whole: the config that the twin is one of, set right.
        least: the inputs without what was added to a text.
    """

    model: nn.Module
    config: Any
    whole: Any
    asks: Mapping[str, Ask]
    least: Mapping[str, Ask]
    notes: tuple[str, ...] = ()


def twin(config: Any, given: Mapping[str, Ask]) -> Made:
    """The smallest model of the same structure that runs, with inputs that it runs with.

    Raises:
        SourceError: none runs; the message is why the smallest did not.
    """
    failed: list[SourceError] = []
    notes = list[str]()
    end = time.monotonic() + SECONDS
    for scale in dict.fromkeys(scales(config)):
        if failed and time.monotonic() > end:
            break
        for _ in range(MENDINGS):
            try:
                made = _tried(plain(shrink(config, scale)), scale, given, seconds=end - time.monotonic())
            except Hopeless:
                raise
            except SourceError as error:
                new, note = mended(config, str(error), scale)
                if new is None:
                    failed.append(error)
                    break
                config, notes = new, [*notes, note]
            else:
                return replace(made, whole=config, notes=(*dict.fromkeys(notes), _said(scale)))
    raise failed[0] if failed else SourceError("no twin of this config is small enough to be run")


def _tried(small: Any, scale: Scale, given: Mapping[str, Ask], *, seconds: float) -> Made:
    """A model of a small config with its inputs; first on meta tensors, to see how large it gets."""
    try:
        size = parameters(make(small, "meta"))
    except SourceError:
        if scale.width == 1 or not scale.layers:
            raise
        size = 0  # some constructors compute with numbers and fail on meta tensors only
    if size > LARGEST_TWIN:
        raise SourceError(f"a twin with {size:,} parameters is too large to be run")
    model = make(small)
    guess = Guess(model, small)
    asks = fitted(guess, guess.first(), given, seconds=min(seconds, SECONDS / 3))
    return Made(model=model, config=small, whole=small, asks=_richer(guess, asks, given), least=asks)


def _richer(guess: Guess, asks: dict[str, Ask], given: Mapping[str, Ask]) -> dict[str, Ask]:
    """The same with an image or a sound beside the text, where the model takes one and it can be made."""
    if "input_ids" not in asks:
        return asks
    for name in ("pixel_values", "input_features"):
        if name in guess.takes.names and name not in asks and (name in given or not given):
            grids = [other for other in guess.takes.names if other == "image_grid_thw" and name == "pixel_values"]
            more = {**asks, **{other: guess.ask(other) for other in [name, *grids]}}
            if name not in given and math.prod(more[name].shape) > LARGEST_RICHER:
                continue
            try:
                asks = fit(guess, more, given, tries=RICHER_TRIES, seconds=RICHER_SECONDS)
            except CannotGuess:
                continue
    return asks


def _said(scale: Scale) -> str:
    parts = [f"widths / {scale.width}"] if scale.width > 1 else []
    parts += [f"heads / {scale.heads}"] if scale.heads > 1 else []
    cut = {"layers": scale.layers, "a smaller vocabulary": scale.vocabulary, "experts": scale.experts}
    parts += ["fewer layers"] if cut["layers"] else []
    return f"a tiny twin of the same structure: {', '.join(parts)}" if parts else "made as its config says"
