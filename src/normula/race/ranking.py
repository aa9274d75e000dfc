"""Who came first: each contestant at its own best rate and warmup, with what chance may have done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from normula.race.bootstrap import is_large, mean_interval
from normula.race.field import Field, Setting, outcomes
from normula.race.stability import stability
from normula.record import Difference, Interval, Standing


def differences(field: Field) -> tuple[Difference, ...]:
    """Each pair, at its own best settings; resampled by pairs of runs with the same seed, which share their data."""
    return tuple(
        _difference(field, first, second)
        for first, second in combinations((name for name in field.names if field.best(name) is not None), 2)
    )


def standings(field: Field, found: Sequence[Difference]) -> tuple[Standing, ...]:
    """The contestants, the best first; those without a loss last.

    Args:
        field: their runs.
        found: the differences between them.
    """
    beaten = {name: sum(one.shown and one.worse == name for one in found) for name in field.names}
    made = [_standing(field, name, 1 + beaten[name]) for name in field.names]
    return tuple(sorted(made, key=lambda one: math.inf if math.isnan(one.loss.value) else one.loss.value))


def _difference(field: Field, first: str, second: str) -> Difference:
    a, b = _best_losses(field, first), _best_losses(field, second)
    if np.mean(list(a.values())) > np.mean(list(b.values())):
        first, second, a, b = second, first, b, a
    seeds = sorted(set(a) & set(b))
    gap = mean_interval(np.array([b[seed] - a[seed] for seed in seeds]))
    shown = gap.low > 0 and is_large(gap)
    return Difference(facet=field.facet, better=first, worse=second, gap=gap, shown=shown)


def _best_losses(field: Field, name: str) -> dict[int, float]:
    best = field.best(name)
    assert best is not None
    return field.losses(name, best)


def _standing(field: Field, name: str, place: int) -> Standing:
    best, trials = field.best(name), field.of(name)
    nothing = Interval(value=math.nan)
    loss, stable = nothing, (nothing, nothing, nothing)
    if best is not None:
        loss = mean_interval(np.array(list(field.losses(name, best).values())))
        stable = stability(field, name, best[1])
    return Standing(
        name=name,
        facet=field.facet,
        place=place if best else 0,
        lr=best[0] if best else math.nan,
        warmup=best[1] if best else 0,
        loss=loss,
        at=field.steps if field.at is None else field.at,
        held_out=field.at is None,
        edges=_edges(field, name, best) if best else (),
        sensitivity=stable[0],
        stable_rate=stable[1],
        warmup_needed=stable[2],
        outcomes=outcomes(trials),
        runs=len(trials),
        steps=sum(len(trial.curve) for trial in trials),
        seconds=sum(trial.seconds for trial in trials),
        tokens=round(sum(trial.seconds * trial.tokens_per_second for trial in trials)),
    )


def _edges(field: Field, name: str, best: Setting) -> tuple[str, ...]:
    """Where the best setting is the last one tried; no warmup at all is an end of nothing."""
    rates, warmups = field.rates(name), field.warmups(name)
    found = []
    if len(rates) > 1 and best[0] in (rates[0], rates[-1]):
        found.append("lowest rate" if best[0] == rates[0] else "highest rate")
    if len(warmups) > 1 and best[1] in (warmups[0], warmups[-1]) and best[1] > 0:
        found.append("shortest warmup" if best[1] == warmups[0] else "longest warmup")
    return tuple(found)
