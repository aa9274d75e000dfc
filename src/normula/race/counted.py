"""What a run counts as where runs are compared: a loss, also where it diverged or was stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

from normula.race.outcome import WINDOW
from normula.record import Trial

FINISHED = ("learned", "stuck", "diverged")
"""Outcomes of the training itself; other runs were stopped from outside, or could not be made."""

HALVING = "halving"
"""How the note of a run begins that was dropped for its loss."""


def first_loss(trial: Trial) -> float:
    """Before any update; twice the loss of symbol frequencies where it is no number: as bad as anything can be."""
    start = trial.curve[0] if trial.curve else math.nan
    return start if math.isfinite(start) else 2 * trial.stuck_loss


def counted_loss(trial: Trial, at: int | None = None) -> float:
    """The held-out loss at the end, or with `at` the mean training loss of the updates up to it, in nats.

    Never more than the first loss, and just that where the run diverged (Wortsman et al., Small-scale proxies for
    large-scale Transformer training instabilities, 2023, section 2). nan for a run that did not get so far.
    """
    start = first_loss(trial)
    if trial.outcome == "diverged":
        return start
    if trial.outcome == "failed" or (trial.outcome == "dropped" and (at is None or len(trial.curve) < at)):
        return math.nan
    if at is None:
        return min(trial.loss, start)
    return min(fmean(trial.curve[max(0, at - WINDOW) : at]), start)


def common_step(trials: Iterable[Trial]) -> int | None:
    """The updates that every run has made, where some were stopped for their time; None where none was.

    A run that was stopped because another setting of the same contestant did better stands for nothing, and is left
    out, as is one that made no update at all.
    """
    stopped = [len(trial.curve) for trial in trials if trial.outcome == "dropped" and not is_halved(trial)]
    return min((steps for steps in stopped if steps), default=None)


def is_halved(trial: Trial) -> bool:
    """Whether a run was dropped for its loss, by successive halving."""
    return trial.outcome == "dropped" and trial.note.startswith(HALVING)
