"""DeepNorm and Post-LN in stacks of a hundred layers."""

from __future__ import annotations

from collections.abc import Sequence

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import gap, is_shown, jobs, learned, table
from normula.race import Lane
from normula.race.field import fields
from normula.race.words import interval
from normula.record import Trial

LR, WARMUPS = 1e-3, (0, 50)
RACE = copy_race(
    placements=("post", Lane(placement=Lane.of("deepnorm").placement, name="deepnorm", init="paper")),
    depth=100,
    lr=LR,
    warmup=WARMUPS,
    steps=100,
    seeds=2,
)


def judge(trials: Sequence[Trial]) -> Measured:
    """Whether each learns, with warmup or without."""
    (field,) = fields(RACE, trials)
    points = {name: [(name, (LR, warmup)) for warmup in WARMUPS] for name in ("post", "deepnorm")}
    of = {name: sum(learned(field.trials[point]) for point in found) for name, found in points.items()}
    runs = len(WARMUPS) * RACE.seeds
    gaps = [gap(field, post, deep) for post, deep in zip(points["post"], points["deepnorm"], strict=True)]
    return Measured(
        verdict="holds"
        if of["deepnorm"] == runs and not of["post"] and all(map(is_shown, gaps))
        else "holds in part"
        if of["deepnorm"] > of["post"]
        else "does not hold here",
        figures=tuple(table(field, [*points["deepnorm"], *points["post"]])),
        text=f"Of {runs} runs each, {of['deepnorm']} of DeepNorm learn and {of['post']} of Post-LN. Post-LN ends "
        f"{interval(gaps[0])} nats above DeepNorm without warmup and {interval(gaps[1])} with it.",
    )


CLAIM = TrainedClaim(
    statement="DeepNorm trains at a hundred layers, where Post-LN does not.",
    source="Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022",
    how="100 layers of width 32 give back 8 random symbols: 100 updates of Adam at 1e-3, no warmup and 50 updates of "
    "it, two seeds; Post-LN from Xavier weights, DeepNorm from those with its factor (8L)^(-1/4).",
    recorded="holds",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=1.5,
)
