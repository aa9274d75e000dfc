"""Here lives Field: the runs of one facet of a grid, by contestant, rate and warmup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from normula.race.bootstrap import mean_interval
from normula.race.counted import common_step, counted_loss
from normula.race.grid import Grid
from normula.record import Cell, Facet, Trial

Setting = tuple[float, int]
"""Rate and warmup."""

Counted = dict[int, float]
"""Losses by seed."""

Losses = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The runs of one facet.

    Args:
        facet: which.
        steps: updates that were wanted.
        at: updates at which runs are compared by their training loss; None for held-out losses at the end.
        settings: of each contestant, as the grid has them.
        trials: of each contestant and setting, by seed.
        counted: what each of these runs counts as, by seed: those alone that are compared.
    """

    facet: Facet
    steps: int
    at: int | None
    settings: dict[str, tuple[Setting, ...]]
    trials: dict[tuple[str, Setting], tuple[Trial, ...]]
    counted: dict[tuple[str, Setting], Counted]

    @property
    def names(self) -> tuple[str, ...]:
        """The contestants."""
        return tuple(self.settings)

    def rates(self, name: str) -> tuple[float, ...]:
        """Rising."""
        return tuple(sorted({lr for lr, _ in self.settings[name]}))

    def warmups(self, name: str) -> tuple[int, ...]:
        """Rising."""
        return tuple(sorted({warmup for _, warmup in self.settings[name]}))

    def of(self, name: str) -> tuple[Trial, ...]:
        """All runs of a contestant."""
        return tuple(trial for setting in self.settings[name] for trial in self.trials[name, setting])

    def losses(self, name: str, setting: Setting) -> Counted:
        """What each run counts as, by seed; without those that count as nothing, or are not to be compared."""
        return self.counted[name, setting]

    def best(self, name: str) -> Setting | None:
        """The setting with the lowest mean loss among those that have the most runs to count."""
        found = {setting: self.losses(name, setting) for setting in self.settings[name]}
        most = max(map(len, found.values()))
        if not most:
            return None
        return min((s for s in found if len(found[s]) == most), key=lambda setting: fmean(found[setting].values()))

    def cells(self) -> tuple[Cell, ...]:
        """The stability map of the facet."""
        return tuple(self._cell(name, setting) for name in self.names for setting in self.settings[name])

    def _cell(self, name: str, setting: Setting) -> Cell:
        trials = self.trials[name, setting]
        losses = [loss for trial in trials if not math.isnan(loss := counted_loss(trial, self.at))]
        return Cell(
            name=name,
            facet=self.facet,
            lr=setting[0],
            warmup=setting[1],
            loss=mean_interval(np.array(losses)),
            outcomes=outcomes(trials),
            identities=tuple(trial.identity for trial in trials),
        )


def outcomes(trials: Sequence[Trial]) -> dict[str, int]:
    """How many came to what."""
    words = ("learned", "stuck", "diverged", "dropped", "failed")
    counts = {word: sum(trial.outcome == word for trial in trials) for word in words}
    return {word: number for word, number in counts.items() if number}


def fields(grid: Grid, trials: Sequence[Trial]) -> tuple[Field, ...]:
    """The facets of a grid with their runs, in the order of the grid."""
    axes = (grid.depth, grid.width, grid.batch, grid.optimiser, grid.norm, grid.init)
    return tuple(
        _field(grid, trials, Facet(depth=depth, width=width, batch=batch, optimiser=optimiser, norm=norm, init=init))
        for depth, width, batch, optimiser, norm, init in product(*axes)
    )


def _field(grid: Grid, trials: Sequence[Trial], facet: Facet) -> Field:
    settings = {
        lane.name: tuple(product(grid.lr if lane.lr is None else (lane.lr,), grid.warmup)) for lane in grid.lanes
    }
    inits = {lane.name: facet.init if lane.init is None else lane.init for lane in grid.lanes}
    here = [trial for trial in trials if trial.name in inits and _is_in(trial, facet, inits[trial.name])]
    of: dict[tuple[str, Setting], list[Trial]] = {(name, one): [] for name in settings for one in settings[name]}
    for trial in sorted(here, key=lambda trial: trial.seed):
        of[trial.name, (trial.lr, trial.warmup)].append(trial)
    at = common_step(here)
    return Field(
        facet=facet,
        steps=grid.steps,
        at=at,
        settings=settings,
        trials={key: tuple(found) for key, found in of.items()},
        counted=_counted(of, at),
    )


def _counted(of: Mapping[tuple[str, Setting], Sequence[Trial]], at: int | None) -> dict[tuple[str, Setting], Counted]:
    """What runs count as, of the seeds with which every run was made; of all where there are none such.

    Where a race was interrupted, only these compare settings and contestants on the same terms.
    """
    made = [{trial.seed for trial in trials} for trials in of.values()]
    seeds = set.intersection(*made) or set.union(*made)
    found = {key: {trial.seed: counted_loss(trial, at) for trial in trials} for key, trials in of.items()}
    return {
        key: {seed: loss for seed, loss in losses.items() if seed in seeds and not math.isnan(loss)}
        for key, losses in found.items()
    }


def _is_in(trial: Trial, facet: Facet, init: str) -> bool:
    """Whether a run belongs to a facet; a contestant with weights of its own stands in each of them."""
    mine = (trial.layers, trial.width, trial.batch, trial.optimiser, trial.norm, trial.init)
    return mine == (facet.depth, facet.width, facet.batch, facet.optimiser, facet.norm, init)
