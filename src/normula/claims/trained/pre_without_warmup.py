"""Whether warmup is what a deep Post-LN stack needs, and Pre-LN does not."""

from __future__ import annotations

from collections.abc import Sequence

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import gap, is_shown, jobs, learned, table
from normula.race.field import fields
from normula.race.words import interval
from normula.record import Trial

LR, WARMUP = 2e-3, 75
RACE = copy_race(depth=18, lr=LR, warmup=(0, WARMUP))


def judge(trials: Sequence[Trial]) -> Measured:
    """Both placements, with warmup and without."""
    (field,) = fields(RACE, trials)
    post, post_warm, pre, pre_warm = points = [(name, (LR, w)) for name in ("post", "pre") for w in (0, WARMUP)]
    behind, helped = gap(field, post, pre), gap(field, post, post_warm)
    free = learned(field.trials[pre]) == RACE.seeds and not is_shown(gap(field, pre, pre_warm))
    saved = learned(field.trials[post_warm]) == RACE.seeds and is_shown(helped)
    fails = is_shown(behind)
    return Measured(
        verdict="holds"
        if fails and free and saved
        else "holds in part"
        if fails and free
        else "not shown here"
        if free
        else "does not hold here",
        figures=tuple(table(field, points)),
        text=f"Without warmup Post-LN ends {interval(behind)} nats above Pre-LN. A warmup of {WARMUP} of the "
        f"{RACE.steps} updates takes {interval(helped)} nats off Post-LN's loss, and with it "
        f"{learned(field.trials[post_warm])} of {RACE.seeds} runs learn; Pre-LN learns in "
        f"{learned(field.trials[pre])} of {RACE.seeds} without.",
    )


CLAIM = TrainedClaim(
    statement="Pre-LN trains without warmup where Post-LN does not.",
    source="Xiong et al., On Layer Normalization in the Transformer Architecture, 2020",
    how="18 layers of width 32 from Xavier weights give back 8 random symbols: Adam at 2e-3, no warmup and 75 updates "
    "of it, of 150; three seeds, bootstrap intervals of 95 % in brackets.",
    recorded="holds",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=0.4,
)
