"""What a large rate does to a deep Post-LN stack in its first updates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import TITLES, jobs
from normula.race.words import count
from normula.record import Figure, Series, Trial

RATES = (5e-3, 2e-2)
RACE = copy_race(depth=18, lr=RATES)
EVERY = 5
"""Updates between two points of the chart."""


def judge(trials: Sequence[Trial]) -> Measured:
    """What the runs come to, and the jumps of their losses."""
    of = {(name, lr): [t for t in trials if (t.name, t.lr) == (name, lr)] for name in TITLES for lr in RATES}
    of = {point: runs for point, runs in of.items() if runs}
    troubled = {point: sum(_is_troubled(trial) for trial in runs) for point, runs in of.items()}
    post = all(troubled["post", lr] == len(of["post", lr]) for lr in RATES)
    pre = any(troubled["pre", lr] for lr in RATES)
    some = any(troubled["post", lr] > troubled["pre", lr] for lr in RATES)
    figures = []
    for (name, lr), runs in of.items():
        label = f"{TITLES[name]}, rate {lr:g}"
        figures += [
            Figure(label=f"{label}: stuck of {count(len(runs), 'run')}", value=float(_are(runs, "stuck"))),
            Figure(label=f"{label}: diverged", value=float(_are(runs, "diverged"))),
            Figure(label=f"{label}: spikes", value=float(sum(len(trial.spikes) for trial in runs))),
            Figure(label=f"{label}: loss", value=fmean(trial.loss for trial in runs)),
        ]
    return Measured(
        verdict="holds" if post and not pre else "holds in part" if some else "does not hold here",
        figures=tuple(figures),
        text=f"Of {count(sum(len(of['post', lr]) for lr in RATES), 'run')} each, "
        + " and ".join(
            f"{_how([t for lr in RATES for t in of[name, lr]])} with {TITLES[name]}" for name in ("post", "pre")
        )
        + ".",
        series=tuple(
            Series(label=label, x=x, y=y)
            for (name, lr), runs in of.items()
            for label, x, y in [_curve(f"{TITLES[name]}, rate {lr:g}", runs)]
        ),
        x="update",
        y="training loss",
    )


def _is_troubled(trial: Trial) -> bool:
    return trial.outcome != "learned" or bool(trial.spikes)


def _are(runs: Sequence[Trial], outcome: str) -> int:
    return sum(trial.outcome == outcome for trial in runs)


def _how(runs: Sequence[Trial]) -> str:
    """What the trouble of the runs consists of."""
    stuck, diverged, spiked = _are(runs, "stuck"), _are(runs, "diverged"), sum(bool(trial.spikes) for trial in runs)
    return f"{stuck} end no better than the frequencies of the symbols, {diverged} diverge, {spiked} spike"


def _curve(label: str, runs: Sequence[Trial]) -> tuple[str, tuple[float, ...], tuple[float, ...]]:
    """The mean loss over the seeds, as far as all go."""
    steps = range(0, min(len(trial.curve) for trial in runs), EVERY)
    return label, tuple(map(float, steps)), tuple(fmean(trial.curve[step] for trial in runs) for step in steps)


CLAIM = TrainedClaim(
    statement="At aggressive rates Post-LN's loss spikes or sticks within the first updates.",
    source="Xiong et al., On Layer Normalization in the Transformer Architecture, 2020: with 500 steps of "
    "warmup 31.16 BLEU at a rate of 5e-4 and 2.77 at 1e-3",
    how="18 layers of width 32 from Xavier weights give back 8 random symbols: 150 updates of Adam at 5e-3 and 2e-2, "
    "no warmup, three seeds; a run is stuck less than 0.1 nats below the frequencies of the symbols (2.77).",
    recorded="holds",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=0.4,
)
