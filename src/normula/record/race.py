"""Here live the records of races: what each training run came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["learned", "stuck", "diverged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training run.

    Attributes:
        identity: hash of all that can change the result.
        name: the placement.
        init, lr, warmup, seed: what the run varies.
        curve: training loss at each step, in nats.
        loss: on the validation batch at the end, in nats; nan where training ended early.
        stuck_loss: of a model that has learnt how often each symbol comes and no more, on the same batch.
        outcome: `learned`, `stuck` (no better than that), `diverged` (not finite, or worse than the start).
        seconds: of training.
        tokens_per_second: of training.
    """

    identity: str
    name: str
    init: str
    lr: float
    warmup: int
    seed: int
    curve: tuple[float, ...]
    loss: float
    stuck_loss: float
    outcome: Outcome
    seconds: float
    tokens_per_second: float
