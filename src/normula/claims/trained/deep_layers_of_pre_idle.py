"""What each layer of a trained stack is worth: the loss with the layer left out, by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.dropped import layer_drop
from normula.claims.runs import TITLES
from normula.race import Grid, Job
from normula.race.bootstrap import mean_interval
from normula.race.words import interval
from normula.record import Figure, Interval, Series

RACE = Grid(
    placements=("pre", "lns", "peri"),
    task="text",
    init=("xavier_qkv",),
    depth=(12,),
    lr=(3e-3,),
    warmup=(50,),
    steps=400,
    seeds=3,
)
LATE = 1 / 2
"""A deep third that is worth less than this share of an even part contributes little."""

Losses = tuple[float, ...]
"""Of the whole stack, then without each layer."""


def judge(found: Sequence[Losses]) -> Measured:
    """The share that the last third of the layers has of what all layers are worth, each by itself."""
    of: dict[str, list[Losses]] = {}
    for entry, losses in zip(RACE.entries, found, strict=True):
        of.setdefault(str(entry.name), []).append(losses)
    late = {name: mean_interval(np.array([_late(losses) for losses in runs])) for name, runs in of.items()}
    even = len(_last_third(range(RACE.depth[0]))) / RACE.depth[0]
    idle = late["pre"].high < LATE * even
    gains = {name: _paired(of[name], of["pre"]) for name in of if name != "pre"}
    changed = [name for name, one in gains.items() if one.low > 0]
    figures = []
    for name, runs in of.items():
        figures += [
            Figure(
                label=f"{TITLES[name]}: share of the last third", value=late[name].value, expected=f"even: {even:.2g}"
            ),
            Figure(label=f"{TITLES[name]}: from", value=late[name].low),
            Figure(label=f"{TITLES[name]}: to", value=late[name].high),
            Figure(label=f"{TITLES[name]}: loss of the whole", value=fmean(losses[0] for losses in runs)),
        ]
    return Measured(
        verdict="holds"
        if idle and changed
        else "holds in part"
        if idle or changed
        else "does not hold here"
        if late["pre"].low > even
        else "not shown here",
        figures=tuple(figures),
        text=f"The last third of the layers has {interval(late['pre'])} of what Pre-LN's layers are worth, where an "
        f"even part is {even:.2f}. "
        + " ".join(
            f"{TITLES[name]}'s share is {interval(late[name])}, {_beside(one)} Pre-LN's by {interval(one)}."
            for name, one in gains.items()
        ),
        series=tuple(
            Series(
                label=TITLES[name],
                x=tuple(map(float, range(1, RACE.depth[0] + 1))),
                y=tuple(np.mean([_worth(losses) for losses in runs], axis=0).tolist()),
            )
            for name, runs in of.items()
        ),
        x="layer left out",
        y="rise of the held-out loss",
    )


def _worth(losses: Losses) -> list[float]:
    """How much the loss rises without each layer, in nats; nothing where it falls."""
    return [max(0.0, loss - losses[0]) for loss in losses[1:]]


def _last_third(layers: Sequence[float]) -> Sequence[float]:
    return layers[-(len(layers) // 3) :]


def _late(losses: Losses) -> float:
    worth = _worth(losses)
    return sum(_last_third(worth)) / sum(worth)


def _paired(of: Sequence[Losses], pre: Sequence[Losses]) -> Interval:
    """How much larger the share of the last third is than Pre-LN's, seed by seed."""
    return mean_interval(np.array([_late(one) - _late(other) for one, other in zip(of, pre, strict=True)]))


def _beside(gain: Interval) -> str:
    return "above" if gain.low > 0 else "below" if gain.high < 0 else "not shown to differ from"


def _jobs(framework: str) -> tuple[Job, ...]:
    return tuple(Job(layer_drop, (entry,)) for entry in replace(RACE, framework=framework).entries)


CLAIM = TrainedClaim(
    statement="The deep layers of Pre-LN contribute little, and LayerNorm Scaling or Peri-LN change that.",
    source="Sun et al., The Curse of Depth in Large Language Models (LayerNorm Scaling), 2025; Li, Yin and Liu, "
    "Mix-LN, 2024; Kim et al., Peri-LN, 2025",
    how="Twelve layers of width 32 from Xavier weights, trained on the bytes of Python's standard library: 400 updates "
    "of Adam at 3e-3, warmup over 50, three seeds; then the held-out loss with each layer replaced by the identity.",
    recorded="holds in part",
    jobs=_jobs,
    judge=judge,
    minutes=3.0,
)
