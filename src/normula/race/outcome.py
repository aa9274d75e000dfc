"""What a training run came to: the one place where learned, stuck and diverged are told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normula.record import Outcome

MARGIN = 0.1
"""Nats below the loss of symbol frequencies that a run must reach to have learnt anything of the context."""


def outcome(curve: Sequence[float], loss: float, stuck_loss: float) -> Outcome:
    """Diverged: a loss is not finite, or it ends above both its start and the loss of symbol frequencies.

    Stuck: it ends no more than MARGIN below the loss of symbol frequencies. Learned: all else.
    """
    if not math.isfinite(loss) or not all(math.isfinite(value) for value in curve):
        return "diverged"
    if curve and loss > max(curve[0], stuck_loss):
        return "diverged"
    return "stuck" if loss > stuck_loss - MARGIN else "learned"
