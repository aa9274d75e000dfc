"""Here live Claim and TrainedClaim: a statement of the literature and the measurement that it is held against."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normula.race import Job
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
class Said:
    """What is said, by whom, and how it is tried.

    Args:
        statement: what is said, in our words.
        source: who says it: author, title, year, place.
        how: what is measured here, with the sizes.
        recorded: the verdict on record.
    """

    statement: str
    source: str
    how: str
    recorded: ClaimVerdict

    def result(self, name: str, found: Measured, seconds: float) -> ClaimResult:
        """The record of a measurement."""
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
            seconds=seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Said):
    """A statement; each stands in a file of its own.

    Args:
        measure: measures; takes a few seconds on one core, and depends on nothing but the code.
    """

    measure: Callable[[], Measured]

    def run(self, name: str) -> ClaimResult:
        """Measure it."""
        start = time.perf_counter()
        found = self.measure()
        return self.result(name, found, time.perf_counter() - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedClaim(Said):
    """A statement that is tried by training; each stands in a file of its own.

    Args:
        jobs: the trainings in a framework; several claims may share one.
        judge: says what their results show, given in the order of the jobs.
        minutes: that the trainings take on two idle cores.
    """

    jobs: Callable[[str], tuple[Job, ...]]
    judge: Callable[[Sequence[Any]], Measured]
    minutes: float

    def run(self, name: str, results: Sequence[Any], seconds: float) -> ClaimResult:
        """Judge what the trainings gave, after so many seconds of work."""
        found = self.result(name, self.judge(results), seconds)
        return replace(found, how=f"{self.how} About {self.minutes:g} minutes on two idle cores.")
