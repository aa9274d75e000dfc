"""Here live the records that a comparison and a race share: who took part, what decided, what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A placement of the comparison, as it is shown.

    Attributes:
        name: what it is called here.
        title: its usual name.
        placement: as `Placement.to_dict` gives it.
        skip: derivative of the skip path.
        words: the formula in English.
        svg: the drawn block.
        predictions: what the literature says will happen, each with its source.
    """

    name: str
    title: str
    placement: dict[str, Any]
    skip: str
    words: str
    svg: str
    predictions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of the variance of the final loss a factor, or two together, explain; shares add up to 1."""

    factors: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence of the verdict; its kind is headline, outcome, difference, factor, stability, flow or caution."""

    kind: str
    text: str
