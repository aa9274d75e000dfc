"""How much a contestant minds its learning rate, up to which rate it learns, and what warmup it needs.

Sensitivity to the rate (Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities, 2023,
section 2), over the rates that were tried:

    mean of min(loss, first loss) - min of min(loss, first loss)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from normula.race.bootstrap import SMALLEST, interval, resamples
from normula.race.field import Field, Losses
from normula.race.outcome import MARGIN
from normula.record import Interval

TIMES = 2
"""The best loss so many times over is no longer close to it, however few nats that is: on a task that can be solved."""

Learned = np.ndarray[Any, np.dtype[np.bool_]]


def sensitivity(losses: Losses) -> Interval:
    """Of losses (rates, seeds), none above the first loss."""
    rates, seeds = losses.shape
    if rates < 2 or not seeds:
        return Interval(value=math.nan)
    resampled = losses[:, resamples(seeds)].mean(axis=-1)
    means = losses.mean(axis=-1)
    return interval(float(means.mean() - means.min()), resampled.mean(axis=0) - resampled.min(axis=0), seeds=seeds)


def stable_rate(rates: Sequence[float], learned: Learned) -> Interval:
    """The largest rate with which, at some warmup, every run learned; 0 for none.

    Args:
        rates: rising.
        learned: (rates, warmups, seeds).
    """
    seeds = learned.shape[-1]
    if not seeds:
        return Interval(value=math.nan)

    every = np.asarray(learned[:, :, resamples(seeds)].all(axis=-1))
    value = _largest(rates, np.asarray(learned.all(axis=-1)))
    return interval(float(value), _largest(rates, every), seeds=seeds, whole=True)


def warmup_needed(warmups: Sequence[int], losses: Losses, learned: Learned) -> Interval:
    """The smallest warmup with which, at some rate, every run learned and the mean loss is close to the best one.

    Close is no more than SMALLEST above it, or no more than MARGIN, which tells learned from stuck, and TIMES it.

    Args:
        warmups: rising.
        losses, learned: (rates, warmups, seeds).

    Returns:
        inf where none of those tried is enough; nan with one warmup.
    """
    seeds = losses.shape[-1]
    if len(warmups) < 2 or not seeds:
        return Interval(value=math.nan)

    drawn = resamples(seeds)
    every = np.asarray(learned[:, :, drawn].all(axis=-1))
    resampled = _smallest(warmups, losses[:, :, drawn].mean(axis=-1), every)
    value = _smallest(warmups, losses.mean(axis=-1), np.asarray(learned.all(axis=-1)))
    return interval(float(value), resampled, seeds=seeds, whole=True)


def stability(field: Field, name: str, warmup: int) -> tuple[Interval, Interval, Interval]:
    """Sensitivity at this warmup, stable rate and warmup needed of a contestant, over the seeds that have all runs."""
    rates, warmups = field.rates(name), field.warmups(name)
    points = [[field.losses(name, (lr, steps)) for steps in warmups] for lr in rates]
    row = [of[warmups.index(warmup)] for of in points]
    complete = sorted(set.intersection(*(set(of) for line in points for of in line)))
    losses = np.array([[[of[seed] for seed in complete] for of in line] for line in points])
    learned = np.array([[[_learned(field, name, lr, w, s) for s in complete] for w in warmups] for lr in rates])
    seeds = sorted(set.intersection(*map(set, row)))
    shape = (len(rates), len(warmups), len(complete))
    return (
        sensitivity(np.array([[of[seed] for seed in seeds] for of in row]).reshape(len(rates), len(seeds))),
        stable_rate(rates, learned.reshape(shape).astype(bool)),
        warmup_needed(warmups, losses.reshape(shape), learned.reshape(shape).astype(bool)),
    )


def _largest(rates: Sequence[float], every: Learned) -> Losses:
    """Of arrays (rates, warmups, ...) that say whether every run learned."""
    columns = np.reshape(np.asarray(rates), (-1, *[1] * (every.ndim - 2)))
    return np.asarray((every.any(axis=1) * columns).max(axis=0))


def _smallest(warmups: Sequence[int], means: Losses, every: Learned) -> Losses:
    """Of arrays (rates, warmups, ...): mean losses, and whether every run learned."""
    reached = np.where(every, means, np.inf).min(axis=0)
    best = reached.min(axis=0)
    enough = np.isfinite(reached) & _close(reached, np.where(np.isfinite(best), best, 0.0))
    columns = np.reshape(np.asarray(warmups), (-1, *[1] * (enough.ndim - 1)))
    return np.asarray(np.where(enough, columns, np.inf).min(axis=0))


def _close(losses: Losses, best: Losses) -> Learned:
    gap = losses - best
    found: Learned = (gap <= SMALLEST) | ((gap <= MARGIN) & (losses <= TIMES * best))
    return found


def _learned(field: Field, name: str, lr: float, warmup: int, seed: int) -> bool:
    return any(trial.outcome == "learned" for trial in field.trials[name, (lr, warmup)] if trial.seed == seed)
