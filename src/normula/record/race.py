"""Here live the records of races: what each training run came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["learned", "stuck", "diverged", "dropped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The held-out data, looked at once.

    Attributes:
        step: updates made before.
        loss: mean cross-entropy of what is scored, in nats.
        accuracy: share of it whose likeliest symbol is the right one.
    """

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Stream and gradient at one update, on its batch.

    Attributes:
        step: updates made before.
        gradient: norm over all parameters, before any clipping.
        gradients: norm over the parameters of each layer, first to last; empty where a model has no layers to tell.
        rms: of the stream as it enters the first layer and after each, over B, T and D; empty likewise.
    """

    step: int
    gradient: float
    gradients: tuple[float, ...] = ()
    rms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training, whole or up to where it was stopped.

    Attributes:
        curve: loss of each update's batch, in nats; shorter than the recipe where a loss was not finite (it is the
            last), or where the training was stopped.
        evaluations: of the held-out data, the last one at the end.
        snapshots: of a few updates.
        seconds: spent in updates.
        tokens: that went through them.
        state: all that is needed to go on, where it was stopped; None where there is nothing left to do.
    """

    curve: tuple[float, ...]
    evaluations: tuple[Evaluation, ...]
    snapshots: tuple[Snapshot, ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    state: bytes | None = None

    @property
    def loss(self) -> float:
        """On the held-out data at the end, in nats; nan where training ended early."""
        return self.evaluations[-1].loss if self.evaluations else float("nan")

    @property
    def accuracy(self) -> float:
        """On the held-out data at the end; nan where training ended early."""
        return self.evaluations[-1].accuracy if self.evaluations else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training run.

    Attributes:
        identity: hash of all that can change the result.
        name: the placement.
        init, lr, warmup, seed, layers, width, batch, optimiser, norm: what a race can vary.
        steps: updates that were wanted.
        curve: training loss at each step, in nats.
        loss: on the held-out data at the end, in nats; nan where training ended early.
        stuck_loss: of a model that has learnt how often each symbol comes and no more, on the same data.
        outcome: `learned`, `stuck` (no better than that), `diverged` (not finite, or a rise that does not come back),
            `dropped` (stopped before its end, by halving or a limit of time), `failed` (it could not be run).
        accuracy: on the held-out data at the end.
        evaluations, snapshots: on the way.
        spikes: updates at which the loss jumped and came back.
        seconds: of training.
        tokens_per_second: of training.
        memory: greatest memory of the process while it ran, in bytes; 0 where that cannot be known.
        note: why it was dropped or failed.
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
    layers: int = 0
    width: int = 0
    batch: int = 0
    optimiser: str = "adam"
    norm: str = "layernorm"
    steps: int = 0
    accuracy: float = float("nan")
    evaluations: tuple[Evaluation, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    spikes: tuple[int, ...] = ()
    memory: int = 0
    note: str = ""
