"""Here live the records of a race's answer: what the runs of a grid say together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from normula.record.base import SCHEMA, Environment
from normula.record.race import Trial
from normula.record.verdict import Contestant, Share, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number made from all seeds, and where it would lie with other seeds: a bootstrap interval of 95 %.

    Attributes:
        value: from the seeds that were run; inf or nan where there is none, see where it is used.
        low, high: of the interval; nan with fewer than two seeds.
    """

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """A part of the grid in which contestants meet: all that varies but rate, warmup and seed.

    Attributes:
        init: as the grid has it; a contestant with weights of its own stands in each of them.
    """

    depth: int
    width: int
    batch: int
    optimiser: str
    norm: str
    init: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting of a contestant: its runs over the seeds.

    Attributes:
        loss: mean over the seeds of what is compared, in nats; a run that diverged counts with its first loss. nan
            where no run got as far as is compared.
        outcomes: how many runs came to what; those that are planned and not made are in none.
        identities: of the runs, by seed.
    """

    name: str
    facet: Facet
    lr: float
    warmup: int
    loss: Interval
    outcomes: dict[str, int]
    identities: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A contestant in a facet, at its own best rate and warmup.

    Attributes:
        place: 1 and one more for each contestant that is shown to be better; 0 where it has no loss.
        lr, warmup: of its best setting; nan and 0 where there is none.
        loss: there, in nats.
        at: updates after which it is compared.
        held_out: whether the loss is that of held-out data at the end; else that of the last updates up to `at`, since
            some runs were stopped before their end.
        edges: what of the best setting lies on the edge of the grid, such as `highest rate`.
        sensitivity: to the rate, in nats: mean over the rates of min(loss, first loss), minus the best one (Wortsman et
            al., Small-scale proxies for large-scale Transformer training instabilities, 2023, section 2), at the
            warmup of the best setting; nan with one rate.
        stable_rate: the largest rate with which, at some warmup, every run learned; 0 for none of those tried.
        warmup_needed: the smallest warmup with which, at some rate, every run learned and the loss is close to the
            best; inf for none of those tried, nan with one warmup.
        outcomes: of all its runs in the facet.
        runs, steps, seconds, tokens: that it got in the facet, all settings and seeds together.
    """

    name: str
    facet: Facet
    place: int
    lr: float
    warmup: int
    loss: Interval
    at: int
    held_out: bool
    edges: tuple[str, ...]
    sensitivity: Interval
    stable_rate: Interval
    warmup_needed: Interval
    outcomes: dict[str, int]
    runs: int
    steps: int
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two contestants of a facet, each at its own best setting.

    Attributes:
        better, worse: their names, by the mean.
        gap: loss of the worse minus loss of the better, in nats; resampled by pairs of runs with the same seed.
        shown: whether the interval leaves chance out, and the gap is large enough to matter.
    """

    facet: Facet
    better: str
    worse: str
    gap: Interval
    shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Everything that a race found.

    Attributes:
        grid: what was asked for, as `Grid.to_dict` gives it.
        budget: its limits, by the names of the command's options; empty without any.
        data: name, digest and stuck loss of the task.
        contestants: as they are shown.
        nonstandard: contestants whose ends do not go with their layers, and why.
        trials: the runs that were made, whatever they came to, in the order of the grid.
        planned: how many there were to be.
        cells: the stability map.
        standings: each contestant in each facet, the best first.
        differences: each pair in each facet.
        shares: what explains the final losses, largest first; empty where runs are missing.
        verdict: what was found, in words.
        seconds: that the whole took.
        note: why it is not whole, where it is not.
    """

    grid: dict[str, Any]
    data: dict[str, Any]
    contestants: tuple[Contestant, ...]
    nonstandard: dict[str, str]
    trials: tuple[Trial, ...]
    planned: int
    cells: tuple[Cell, ...]
    standings: tuple[Standing, ...]
    differences: tuple[Difference, ...]
    shares: tuple[Share, ...]
    verdict: tuple[Statement, ...]
    environment: Environment
    seconds: float
    note: str = ""
    budget: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA
