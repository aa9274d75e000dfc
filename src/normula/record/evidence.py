"""Here live the records of `guard.check`: what speaks for which placement in a checkpoint that does not say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normula.record.base import SCHEMA

Sure = Literal["stamp", "tensors", "behaviour", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement that the weights may have been trained with.

    Attributes:
        name: how the model comes to it: `as it is`, `norm_first=True`.
        formula: all in one line.
        fits: whether all its tensors are there, and none is left over.
        why_not: if it does not fit, the tensors by site.
        losses_nats: of each sequence of the calibration batch; empty where none was measured.
        even_nats: the same with the logits brought to equal RMS, from 1/8 to 32 in octaves: a row for each. Another
            placement may make all logits larger, and where answers are easy, louder is a lower loss by itself. Empty
            where a loss of the user's own was asked for.
    """

    name: str
    formula: str
    fits: bool
    why_not: str = ""
    losses_nats: tuple[float, ...] = ()
    even_nats: tuple[tuple[float, ...], ...] = ()

    @property
    def loss_nats(self) -> float | None:
        """Mean over the calibration batch."""
        return sum(self.losses_nats) / len(self.losses_nats) if self.losses_nats else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The parameters of one norm in the file: mean and deviation of its gain, RMS of its bias (0 where it has none)."""

    name: str
    site: str
    mean: float
    deviation: float
    bias_rms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for which placement.

    Attributes:
        where: the checkpoint.
        formula: that the weights were trained with; empty where that cannot be told.
        sure: what decided: the file's own stamp, the tensors that are there, behaviour, or nothing (`no`).
        reasons: in words, the strongest first.
        candidates: all that were tried.
        gains: of every norm that the file has parameters of.
        chance_nats: the loss of a model that guesses; None where no loss was measured.
    """

    where: str
    formula: str
    sure: Sure
    reasons: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    gains: tuple[Gain, ...] = ()
    chance_nats: float | None = None
    schema: int = SCHEMA
