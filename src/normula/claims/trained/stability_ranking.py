"""Eleven schemes at one large rate: which of them train."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import RANKING, ranking
from normula.claims.runs import jobs
from normula.race.bootstrap import mean_interval
from normula.race.words import count, listed
from normula.record import Figure, Trial

LR, WARMUP = 3e-3, 0
RACE = ranking(lr=LR, warmup=WARMUP)
FAIL = ("Post-LN", "output norm")
"""The schemes that do not train at this rate, in the table."""
TRAINS, FAILS = 0.3, 1.0
"""Nats that, in the table, all others end below, and these end above."""
UPDATES = 20
"""At the end, over which the table's losses are means."""


def judge(trials: Sequence[Trial]) -> Measured:
    """The final loss of each, beside the table's."""
    of: dict[str, list[float]] = {}
    for trial in trials:
        of.setdefault(trial.name, []).append(_final(trial))
    wrong = [name for name, losses in of.items() if not _is_as_known(name, losses)]
    figures = []
    for name, losses in of.items():
        one = mean_interval(np.array(losses))
        known = RANKING[name][LR, WARMUP]
        figures += [
            Figure(label=f"{name}: loss", value=one.value, expected=f"{fmean(known):.2g}"),
            Figure(label=f"{name}: from", value=one.low, expected=f"{min(known):g}"),
            Figure(label=f"{name}: to", value=one.high, expected=f"{max(known):g}"),
        ]
    good = [loss for name, losses in of.items() if name not in FAIL for loss in losses]
    bad = [loss for name in FAIL for loss in of[name]]
    split = max(good) < min(bad)
    return Measured(
        verdict="holds" if not wrong else "holds in part" if split else "does not hold here",
        figures=tuple(figures),
        text=f"Post-LN and the output norm without norms on queries and keys end at {min(bad):.2f} to {max(bad):.2f} "
        f"nats, where chance is {trials[0].stuck_loss:.2f}; the other {count(len(of) - len(FAIL), 'scheme')} at "
        f"{min(good):.2g} to {max(good):.2g}. "
        + (f"Not as in the table: {listed(wrong)}." if wrong else "All are on the table's side."),
    )


def _final(trial: Trial) -> float:
    """Mean of the last training losses; the loss of symbol frequencies where one is not finite."""
    return trial.stuck_loss if trial.outcome == "diverged" else fmean(trial.curve[-UPDATES:])


def _is_as_known(name: str, losses: Sequence[float]) -> bool:
    return min(losses) > FAILS if name in FAIL else max(losses) < TRAINS


CLAIM = TrainedClaim(
    statement="At a rate that is large for Post-LN, of eleven schemes Post-LN and the output norm without norms on "
    "queries and keys do not train, and all others do.",
    source="A table of an independent implementation; OLMo Team, 2 OLMo 2 Furious, 2025, for the output norm",
    how="12 blocks of width 64 (hidden 128, two heads, no biases) repeat 15 random symbols: 400 updates of Adam (0.9, "
    "0.98) at 3e-3, no warmup, batch 32, Xavier weights with each scheme's factor, two seeds; mean of the last 20 "
    "training losses.",
    recorded="holds",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=6.0,
)
