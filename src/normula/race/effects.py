"""Which factor decided: the variance of the final losses, taken apart (analysis of variance)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from normula.race.counted import FINISHED, counted_loss
from normula.record import Share, Trial

FACTORS: Mapping[str, Callable[[Trial], object]] = {
    "placement": lambda trial: trial.name,
    "initial weights": lambda trial: trial.init,
    "learning rate": lambda trial: trial.lr,
    "warmup": lambda trial: trial.warmup,
    "depth": lambda trial: trial.layers,
    "width": lambda trial: trial.width,
    "batch": lambda trial: trial.batch,
    "optimiser": lambda trial: trial.optimiser,
    "kind of norm": lambda trial: trial.norm,
}


def effects(trials: Sequence[Trial]) -> tuple[Share, ...]:
    """Shares of the total sum of squares: each factor, each pair beyond its two factors, and the rest.

    On a full grid the parts are orthogonal and add up to 1. A run that diverged counts with its first loss,
    as in Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities, 2023.
    Empty where the grid has holes (runs are missing, were stopped or failed) or all losses are equal.
    """
    if not trials or not _is_full(trials) or any(trial.outcome not in FINISHED for trial in trials):
        return ()
    y = np.array([counted_loss(trial) for trial in trials])
    total = float(((y - y.mean()) ** 2).sum())
    if total <= 1e-12:
        return ()
    levels = {name: [of(trial) for trial in trials] for name, of in FACTORS.items()}
    varied = [name for name in FACTORS if len(set(levels[name])) > 1]
    single = {name: _between(y, levels[name]) for name in varied}
    shares = [Share(factors=(name,), share=value / total) for name, value in single.items()]
    for first, second in combinations(varied, 2):
        both = _between(y, list(zip(levels[first], levels[second], strict=True)))
        shares.append(Share(factors=(first, second), share=max(0.0, (both - single[first] - single[second]) / total)))
    rest = 1 - sum(share.share for share in shares)
    shares.append(Share(factors=("all else, seeds too",), share=max(0.0, rest)))
    return tuple(sorted(shares, key=lambda share: -share.share))


def _between(y: np.ndarray, labels: Sequence[object]) -> float:
    """Sum of squares between the groups."""
    total = 0.0
    for label in dict.fromkeys(labels):
        group = y[[other == label for other in labels]]
        total += len(group) * float(group.mean() - y.mean()) ** 2
    return total


def _is_full(trials: Sequence[Trial]) -> bool:
    """Whether every combination of levels has the same number of runs."""
    counts: dict[tuple[object, ...], int] = {}
    for trial in trials:
        key = tuple(of(trial) for of in FACTORS.values())
        counts[key] = counts.get(key, 0) + 1
    wanted = math.prod(len({of(trial) for trial in trials}) for of in FACTORS.values())
    return len(counts) == wanted and len(set(counts.values())) == 1
