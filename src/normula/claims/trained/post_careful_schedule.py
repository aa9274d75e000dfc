"""Post-LN with warmup, decay and a rate of its own, against Pre-LN at its best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.runs import gap, is_shown, jobs, mean, table
from normula.race import Grid
from normula.race.bootstrap import SMALLEST
from normula.race.field import fields
from normula.race.words import interval, listed
from normula.record import ClaimVerdict, Trial

RACE = Grid(
    placements=("post", "pre"),
    task="text",
    init=("xavier_qkv",),
    depth=(6,),
    lr=(1e-3, 3e-3, 1e-2),
    warmup=(100,),
    steps=400,
    shape="cosine",
    seeds=3,
)
LEVEL = 2 * SMALLEST
"""Nats within which two losses are as good as each other: 4 % of the perplexity."""


SAID: Mapping[str, tuple[ClaimVerdict, str]] = {
    "ahead": ("holds", "it is the better one"),
    "level": ("holds", f"as good, within {LEVEL:g} nats"),
    "behind": ("does not hold here", "it is shown to be worse"),
    "unclear": ("not shown here", f"neither worse nor as good, within {LEVEL:g} nats, is shown"),
}


def judge(trials: Sequence[Trial]) -> Measured:
    """Both at their own best rate, and at equal rates."""
    (field,) = fields(RACE, trials)
    settings = [(lr, warmup) for lr in RACE.lr for warmup in RACE.warmup]
    best = {name: min(settings, key=lambda one, name=name: mean(field, (name, one)).value) for name in field.names}  # type: ignore[misc]
    behind, ahead = (gap(field, (one, best[one]), (two, best[two])) for one, two in (("post", "pre"), ("pre", "post")))
    is_level = behind.high <= LEVEL
    word = "ahead" if is_shown(ahead) else "level" if is_level else "behind" if is_shown(behind) else "unclear"
    verdict, text = SAID[word]
    equal = [f"{interval(gap(field, ('post', one), ('pre', one)))} at {one[0]:g}" for one in settings]
    return Measured(
        verdict=verdict,
        figures=tuple(table(field, [(name, one) for name in ("post", "pre") for one in settings])),
        text=f"At its own best rate each, Post-LN ends {interval(behind)} nats above Pre-LN: {text}. "
        f"At equal rates the gap is {listed(equal)}.",
    )


CLAIM = TrainedClaim(
    statement="Given a careful schedule, Post-LN ends as good as Pre-LN or better.",
    source="Liu et al., Understanding the Difficulty of Training Transformers, 2020; Xiong et al., On Layer "
    "Normalization in the Transformer Architecture, 2020",
    how="Six layers of width 32 from Xavier weights on the bytes of Python's standard library: 400 updates of Adam, "
    "warmup over 100 and cosine decay, at 1e-3 to 1e-2, three seeds; held-out loss of each at its own best rate.",
    recorded="does not hold here",
    jobs=lambda framework: jobs((RACE,), framework),
    judge=judge,
    minutes=1.5,
)
