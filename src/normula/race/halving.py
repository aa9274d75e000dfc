"""Successive halving: at each rung a contestant keeps the better half of its own settings, and trains on with those.

Jamieson and Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, 2016; here the factor
is 2, and it is never across contestants, so that one that is slow at first keeps its place in the race.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from normula.race.trial import Entry
from normula.record import Trial

STARTED = ("learned", "stuck", "diverged")
"""Outcomes of runs that say something about their setting."""


def rungs(steps: int) -> tuple[int, ...]:
    """Updates after which halving looks at the runs; the end is no rung.

    >>> rungs(150)
    (37, 75)
    """
    return tuple(sorted({steps // 4, steps // 2} - {0}))


@dataclass(frozen=True, slots=True)
class Question:
    """What a contestant's settings are held against each other for: all of it is the same for them."""

    name: str
    depth: int
    width: int
    batch: int
    optimiser: str
    norm: str
    init: str

    @classmethod
    def of(cls, entry: Entry) -> Question:
        spec, recipe = entry.spec, entry.recipe
        name, init = entry.name or spec.placed.name, entry.init or spec.init
        return cls(name, spec.layers, spec.width, recipe.batch, recipe.optimiser, spec.norm, init)

    def __str__(self) -> str:
        around = f"batch {self.batch}, {self.optimiser}, {self.norm}, init {self.init}"
        return f"{self.name}: depth {self.depth}, width {self.width}, {around}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What halving chooses between: all seeds of it stay or go together."""

    lr: float
    warmup: int

    @classmethod
    def of(cls, entry: Entry) -> Setting:
        return cls(entry.recipe.lr, entry.recipe.warmup)

    def __str__(self) -> str:
        return f"rate {self.lr!r}, warmup {self.warmup}"


def cut(runs: Mapping[Setting, Sequence[Trial]], step: int) -> dict[Setting, str]:
    """For each setting why it is dropped, or nothing where it is kept: the better half, and of an odd number one more.

    Args:
        runs: of one contestant, as they are at this rung; ties are broken by the order given.
        step: of the rung.
    """
    losses = {setting: _loss(trials) for setting, trials in runs.items()}
    ranked = sorted(losses, key=losses.__getitem__)  # sorting is stable
    kept = ranked[: math.ceil(len(ranked) / 2)]
    best = losses[ranked[0]]
    count = len(ranked)
    notes = {
        setting: f"halving: after {step} steps its setting came {place} of {count}, with a loss of "
        f"{losses[setting]:.4g}; the best had {best:.4g}"
        for place, setting in enumerate(ranked, start=1)
    }
    return {setting: "" if setting in kept else notes[setting] for setting in runs}


def _loss(trials: Sequence[Trial]) -> float:
    """Held-out loss, the mean over the seeds; infinite where a run diverged or none could be made."""
    found = [trial.loss if math.isfinite(trial.loss) else math.inf for trial in trials if trial.outcome in STARTED]
    return fmean(found) if found else math.inf
