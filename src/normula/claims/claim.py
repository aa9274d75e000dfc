"""Here lives Claim: a statement of the literature and the measurement that it is held against."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from normula.record import ClaimResult, ClaimVerdict, Figure, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a measurement gave: a verdict, the numbers, a sentence or two, and a chart where one helps."""

    verdict: ClaimVerdict
    figures: tuple[Figure, ...]
    text: str
    series: tuple[Series, ...] = ()
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement; each stands in a file of its own.

    Args:
        statement: what is said, in our words.
        source: who says it: author, title, year, place.
        how: what is measured here, with the sizes.
        recorded: the verdict on record.
        measure: measures; takes a few seconds on one core, and depends on nothing but the code.
    """

    statement: str
    source: str
    how: str
    recorded: ClaimVerdict
    measure: Callable[[], Measured]

    def run(self, name: str) -> ClaimResult:
        """Measure it."""
        start = time.perf_counter()
        found = self.measure()
        return ClaimResult(
            name=name,
            statement=self.statement,
            source=self.source,
            how=self.how,
            verdict=found.verdict,
            recorded=self.recorded,
            figures=found.figures,
            text=found.text,
            series=found.series,
            x=found.x,
            y=found.y,
            seconds=time.perf_counter() - start,
        )
