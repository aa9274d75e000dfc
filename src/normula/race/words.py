"""Here live the words that the sentences of a verdict share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from normula.race.grid import OWN
from normula.record import Facet, Interval

INIT_WORDS = {
    OWN: "each one's own weights",
    "xavier": "Xavier weights",
    "xavier_qkv": "Xavier weights (q, k and v as one matrix)",
    "normal": "normal 0.02 weights",
    "torch": "PyTorch's default weights",
    "scaled": "normal 0.02 weights, scaled by 1/sqrt(2L) where they write to the stream",
    "paper": "the paper's own weights",
}

_LABELS: Mapping[str, Callable[[object], str]] = {
    "depth": lambda value: f"depth {value}",
    "width": lambda value: f"width {value}",
    "batch": lambda value: f"batch {value}",
    "optimiser": str,
    "norm": str,
    "init": lambda value: init_words(str(value)),
}


def init_words(init: str) -> str:
    """A rule of initial weights, in words."""
    return INIT_WORDS.get(init, f"{init} weights")


def count(amount: int, noun: str) -> str:
    """An amount of a thing.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{amount} {noun}{'' if amount == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """As a sentence has it.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def capital(text: str) -> str:
    """The first letter large, the others as they are."""
    return text[:1].upper() + text[1:]


def label(facet: Facet, among: Sequence[Facet], *, without: Sequence[str] = ()) -> str:
    """What tells a facet from the others, but for the fields left out; empty where nothing does."""
    names = [one.name for one in fields(Facet) if one.name not in without]
    varied = [name for name in names if len({getattr(other, name) for other in among}) > 1]
    return ", ".join(_LABELS[name](getattr(facet, name)) for name in varied)


def at(where: str, text: str) -> str:
    """A sentence about a part of the grid; about all of it where `where` is empty."""
    return capital(f"{where}: {text}" if where else text)


def loss(value: float) -> str:
    """In nats; a small one, which a task that can be solved ends in, to two significant digits.

    >>> loss(2.345), loss(0.0123), loss(0.0)
    ('2.35', '0.012', '0')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}" if value else "0"


def interval(one: Interval) -> str:
    """A loss with its interval.

    >>> interval(Interval(value=2.0, low=1.9, high=2.25))
    '2.00 [1.90, 2.25]'
    """
    return loss(one.value) if math.isnan(one.low) else f"{loss(one.value)} [{loss(one.low)}, {loss(one.high)}]"
