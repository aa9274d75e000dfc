"""What a training run came to: the one place where learned, stuck and diverged are told apart, and spikes found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from normula.record import Outcome

MARGIN = 0.1
"""Nats below the loss of symbol frequencies that a run must reach to have learnt anything of the context."""

WINDOW = 10
"""Updates over whose mean a curve is judged: one batch is easy or hard by chance."""

SPIKE_WINDOW = 20
"""Updates before a spike that say how high, and how uneven, the loss was."""


def outcome(curve: Sequence[float], loss: float, stuck_loss: float) -> Outcome:
    """Learned, stuck or diverged.

    Diverged: a loss is not finite; or it ends above both its start and the loss of symbol frequencies; or it had
    learnt, and has lost more than half of that, and twice MARGIN, for good. Stuck: it ends no more than MARGIN below
    the loss of symbol frequencies. Learned: all else.
    """
    if not math.isfinite(loss) or not all(math.isfinite(value) for value in curve):
        return "diverged"
    if curve and loss > max(curve[0], stuck_loss):
        return "diverged"
    if _has_lost(curve, stuck_loss):
        return "diverged"
    return "stuck" if loss > stuck_loss - MARGIN else "learned"


def final_training_loss(curve: Sequence[float]) -> float:
    """Mean over the last updates; nan where one is not finite or there are none."""
    last = curve[-WINDOW:]
    return fmean(last) if last and all(map(math.isfinite, last)) else math.nan


def spikes(curve: Sequence[float]) -> tuple[int, ...]:
    """The first update of each stretch in which the loss lies far above the updates before it.

    Far is more than MARGIN, and more than six of their typical distance from their median (the median of it).
    """
    found: list[int] = []
    inside = False
    for step in range(SPIKE_WINDOW, len(curve)):
        before = [value for value in curve[step - SPIKE_WINDOW : step] if math.isfinite(value)]
        middle = median(before) if before else math.inf
        spread = median(abs(value - middle) for value in before) if before else math.inf
        high = not curve[step] <= middle + max(MARGIN, 6 * spread)
        if high and not inside:
            found.append(step)
        inside = high
    return tuple(found)


def _has_lost(curve: Sequence[float], stuck_loss: float) -> bool:
    if len(curve) < 3 * WINDOW:
        return False
    total = sum(curve[:WINDOW])
    best = total
    for step in range(WINDOW, len(curve)):
        total += curve[step] - curve[step - WINDOW]
        best = min(best, total)
    lowest = best / WINDOW
    return final_training_loss(curve) - lowest > max(2 * MARGIN, (stuck_loss - lowest) / 2)
