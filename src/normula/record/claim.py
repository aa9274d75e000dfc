"""Here live the records of claims: a statement of the literature, what was measured of it, a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normula.record.base import SCHEMA

ClaimVerdict = Literal["holds", "holds in part", "not shown here", "does not hold here", "artefact of its probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that was measured, beside the one that the statement or a closed form gives, where there is one."""

    label: str
    value: float
    expected: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of the claim's chart: points (x, y)."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """One claim, measured.

    Attributes:
        name: short, for the command line.
        statement: what is said.
        source: by whom.
        how: what is measured here.
        verdict: what came out.
        recorded: the verdict that is on record; another one now is news, or a fault.
        figures: the numbers.
        text: what they show, in a sentence or two.
        series, x, y: a chart, with the names of its axes; empty where there is none.
        seconds: that it took.
    """

    name: str
    statement: str
    source: str
    how: str
    verdict: ClaimVerdict
    recorded: ClaimVerdict
    figures: tuple[Figure, ...]
    text: str
    series: tuple[Series, ...] = ()
    x: str = ""
    y: str = ""
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def changed(self) -> bool:
        """Whether the verdict is not the recorded one."""
        return self.verdict != self.recorded
