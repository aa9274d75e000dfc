"""How large the stream is at the end of a Pre-LN stack, before and after training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import TITLES, jobs, title
from normula.race.bootstrap import mean_interval
from normula.race.words import interval, listed
from normula.record import Figure, Interval, Series, Trial

RACE = copy_race(depth=18, lr=(1e-3, 5e-3), warmup=(0, 75))


def judge(trials: Sequence[Trial]) -> Measured:
    """The RMS of the stream behind the last layer, at the first update and at the last."""
    points = dict.fromkeys((trial.name, (trial.lr, trial.warmup)) for trial in trials)
    of = {point: [t for t in trials if (t.name, (t.lr, t.warmup)) == point] for point in points}
    growth = {point: mean_interval(np.array([_growth(trial) for trial in runs])) for point, runs in of.items()}
    pre = {point: one for point, one in growth.items() if point[0] == "pre"}
    grown = [point for point, one in pre.items() if one.low > 1]
    shrunk = [point for point, one in pre.items() if one.high < 1]
    figures = []
    for point, one in growth.items():
        figures += [
            Figure(label=f"{title(point)}: growth", value=one.value),
            Figure(label=f"{title(point)}: from", value=one.low),
            Figure(label=f"{title(point)}: to", value=one.high),
            Figure(label=f"{title(point)}: at the start", value=_mean(of[point], 0)[-1]),
            Figure(label=f"{title(point)}: at the end", value=_mean(of[point], -1)[-1]),
        ]
    layers = tuple(map(float, range(trials[0].layers + 1)))
    return Measured(
        verdict="holds"
        if len(grown) == len(pre)
        else "holds in part"
        if grown
        else "does not hold here"
        if shrunk
        else "not shown here",
        figures=tuple(figures),
        text=f"Over {RACE.steps} updates the stream behind the last layer of Pre-LN becomes {_all(pre)}; Post-LN's "
        f"norm keeps it ({_all({point: one for point, one in growth.items() if point[0] == 'post'})}).",
        series=tuple(
            Series(label=f"{TITLES[name]}, {when}", x=layers, y=tuple(_mean(of[name, point], place)))
            for name, point in ((name, (RACE.lr[-1], 0)) for name in ("pre", "post"))
            for when, place in (("first update", 0), ("last update", -1))
        ),
        x="layer",
        y="RMS of the stream",
    )


def _growth(trial: Trial) -> float:
    """How many times as large the stream behind the last layer has become."""
    return trial.snapshots[-1].rms[-1] / trial.snapshots[0].rms[-1]


def _mean(runs: Sequence[Trial], place: int) -> list[float]:
    """The stream's RMS by layer at a look, over the seeds."""
    found: list[float] = np.mean([trial.snapshots[place].rms for trial in runs], axis=0).tolist()
    return found


def _all(growth: dict[tuple[str, tuple[float, int]], Interval]) -> str:
    return listed(
        [f"{interval(one)} times as large (rate {lr:g}, warmup {warmup})" for (_, (lr, warmup)), one in growth.items()]
    )


CLAIM = TrainedClaim(
    statement="In training Pre-LN's residual stream grows beyond its size at the start.",
    source="Kim et al., Peri-LN, 2025; Takase et al., Spike No More, 2023",
    how="18 layers of width 32 from Xavier weights give back 8 random symbols: the stream's RMS behind the last layer "
    "at the last of 150 updates of Adam, over that at the first; two rates, no warmup and 75 updates, three seeds.",
    recorded="holds in part",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=0.8,
)
