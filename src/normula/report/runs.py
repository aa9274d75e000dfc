"""Here live the runs of a comparison as they are shown: the cells of a grid, the best of them, mean curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from normula.record import Comparison, Outcome, Trial
from normula.report.words import SYMBOLS, count, nats

T = TypeVar("T")

OUTCOMES: tuple[Outcome, ...] = ("learned", "stuck", "diverged")


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of one placement at one point of the grid, one a seed; none where it was not run."""

    trials: tuple[Trial, ...]

    @property
    def counts(self) -> tuple[tuple[Outcome, int], ...]:
        """How many came to what, the good ones first."""
        found = ((outcome, sum(trial.outcome == outcome for trial in self.trials)) for outcome in OUTCOMES)
        return tuple((outcome, number) for outcome, number in found if number)

    @property
    def words(self) -> str:
        """The outcome with its sign; with numbers where the seeds differ."""
        if not self.trials:
            return "not run"
        if len(self.counts) == 1:
            return f"{SYMBOLS[self.counts[0][0]]} {self.counts[0][0]}"
        return ", ".join(f"{number} {SYMBOLS[outcome]} {outcome}" for outcome, number in self.counts)

    @property
    def worst(self) -> str:
        """The worst outcome; empty where nothing was run."""
        return self.counts[-1][0] if self.trials else ""

    @property
    def mean(self) -> float:
        """Mean final loss; nan where a run has none."""
        return mean([trial.loss for trial in self.trials])

    @property
    def loss(self) -> str:
        """Mean final loss, and the smallest and largest where there are several."""
        losses = [trial.loss for trial in self.trials]
        if not losses:
            return ""
        if len(losses) == 1 or not all(map(math.isfinite, losses)):
            return nats(self.mean)
        return f"{nats(self.mean)} [{nats(min(losses))}, {nats(max(losses))}]"


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean training loss over the seeds, with the smallest and largest, up to where the first of them ends.

    Attributes:
        steps: the middle of each point; a point is a mean over `size` training steps.
        ended: whether a run diverged.
    """

    size: int
    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """All that was varied, as planned and as run."""

    inits: tuple[str, ...]
    warmups: tuple[int, ...]
    rates: tuple[float, ...]
    trials: tuple[Trial, ...]

    def cell(self, name: str, init: str, warmup: int, lr: float) -> Cell:
        """One point of one placement."""
        point = (name, init, warmup, lr)
        return Cell(tuple(t for t in self.trials if (t.name, t.init, t.warmup, t.lr) == point))

    def cells(self, name: str, init: str, warmup: int | None = None) -> list[Cell]:
        """Of one placement and rule of initial weights, what was run."""
        warmups = self.warmups if warmup is None else (warmup,)
        found = (self.cell(name, init, steps, lr) for steps in warmups for lr in self.rates)
        return [cell for cell in found if cell.trials]

    def best(self, name: str, init: str) -> Cell | None:
        """The cell with the lowest mean loss; None where no cell has a finite one."""
        finite = [cell for cell in self.cells(name, init) if math.isfinite(cell.mean)]
        return min(finite, key=lambda cell: cell.mean, default=None)


def grid(comparison: Comparison) -> Grid:
    """What a comparison varied; what was asked for first, then what else was run."""
    settings, trials = comparison.settings, comparison.trials
    return Grid(
        inits=_levels(settings.get("init"), str, (t.init for t in trials)),
        warmups=tuple(sorted(_levels(settings.get("warmup"), int, (t.warmup for t in trials)))),
        rates=tuple(sorted(_levels(settings.get("lr"), float, (t.lr for t in trials)))),
        trials=trials,
    )


def curve(trials: Sequence[Trial], points: int = 30) -> Curve:
    """The mean curve with so many points at most, as neighbouring steps differ by the batch that they drew."""
    finite = [_finite(trial.curve) for trial in trials]
    length = min(map(len, finite), default=0)
    ended = any(
        len(part) < len(trial.curve) or trial.outcome == "diverged" for part, trial in zip(finite, trials, strict=True)
    )
    size = max(1, math.ceil(max(len(trial.curve) for trial in trials) / points))
    places = [range(start, min(start + size, length)) for start in range(0, length, size)]
    means = [[mean([part[i] for i in place]) for part in finite] for place in places]
    return Curve(
        size=size,
        steps=tuple(mean(place) + 1 for place in places),
        mean=tuple(map(mean, means)),
        low=tuple(map(min, means)),
        high=tuple(map(max, means)),
        ended=ended,
    )


def mean(values: Sequence[float]) -> float:
    """Nan where there are none, or where one is not finite; does not overflow."""
    if not values or not all(map(math.isfinite, values)):
        return math.nan
    return math.fsum(value / len(values) for value in values)


def band(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest; nan where one is not finite."""
    return (min(values), max(values)) if all(map(math.isfinite, values)) else (math.nan, math.nan)


def summary(cells: Sequence[Cell]) -> str:
    """The range of the losses of some cells and what they came to, in a few words."""
    trials = [trial for cell in cells for trial in cell.trials]
    if not trials:
        return "not run"
    losses = [trial.loss for trial in trials if math.isfinite(trial.loss)]
    ends = [f"ends at {nats(min(losses))} to {nats(max(losses))} nats"] if losses else []
    counts = Cell(tuple(trials)).counts
    all_ = "all " if len(trials) > 1 else ""
    came = (
        f"{all_}{counts[0][0]}" if len(counts) == 1 else ", ".join(f"{number} {outcome}" for outcome, number in counts)
    )
    return ", ".join([*ends, f"{came} ({count(len(trials), 'run')})" if len(counts) == 1 else came])


def _levels(planned: object, kind: type[T], run: Iterable[T]) -> tuple[T, ...]:
    """Both, each once; the settings of a record are not checked when it is read."""
    wanted = [level for level in planned if isinstance(level, kind)] if isinstance(planned, list | tuple) else []
    return tuple(dict.fromkeys([*wanted, *run]))


def _finite(values: Sequence[float]) -> Sequence[float]:
    """Up to the first that is not finite."""
    return values[: next((i for i, value in enumerate(values) if not math.isfinite(value)), len(values))]
