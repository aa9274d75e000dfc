"""Up to which rate each placement learns, at the better of two warmups."""

from __future__ import annotations

from collections.abc import Sequence

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import TITLES, Point, jobs, mean, row
from normula.race.field import Field, fields
from normula.race.ranking import differences, standings
from normula.record import Figure, Series, Trial

RATES = (1e-3, 2e-3, 5e-3, 2e-2)
RACE = copy_race(depth=18, lr=RATES, warmup=(0, 75))


def judge(trials: Sequence[Trial]) -> Measured:
    """The largest rate at which every run learned, and the losses on the way there."""
    (field,) = fields(RACE, trials)
    stable = {one.name: one.stable_rate for one in standings(field, differences(field))}
    post, pre = stable["post"], stable["pre"]
    best = {name: [_best(field, name, lr) for lr in RATES] for name in stable}
    figures = [Figure(label=f"{TITLES[name]}: largest stable rate", value=one.value) for name, one in stable.items()]
    for name, points in best.items():
        for point in points:
            label = f"{TITLES[name]}, rate {point[1][0]:g}, best warmup {point[1][1]}"
            figures += row(label, mean(field, point), field.trials[point])
    return Measured(
        verdict="holds"
        if pre.low > post.high
        else "not shown here"
        if pre.value > post.value
        else "does not hold here",
        figures=tuple(figures),
        text=f"At some warmup every run of Pre-LN learns up to a rate of {pre.value:g} [{pre.low:g}, {pre.high:g}]"
        f"{', the largest tried' if pre.value == RATES[-1] else ''}, and every run of Post-LN up to {post.value:g} "
        f"[{post.low:g}, {post.high:g}].",
        series=tuple(
            Series(label=TITLES[name], x=RATES, y=tuple(mean(field, point).value for point in points))
            for name, points in best.items()
        ),
        x="rate",
        y="held-out loss",
    )


def _best(field: Field, name: str, lr: float) -> Point:
    """The contestant at this rate, with its better warmup."""
    points = [(name, (lr, warmup)) for warmup in field.warmups(name)]
    return min(points, key=lambda point: mean(field, point).value)


CLAIM = TrainedClaim(
    statement="Pre-LN tolerates larger learning rates than Post-LN.",
    source="Xiong et al., On Layer Normalization in the Transformer Architecture, 2020",
    how="18 layers of width 32 from Xavier weights give back 8 random symbols: 150 updates of Adam at four rates from "
    "1e-3 to 2e-2, with no warmup and with 75 updates of it, three seeds; the largest rate with which, at the better "
    "warmup, every run learned.",
    recorded="holds",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=1.5,
)
