"""A Post-LN design that does not train, with nothing but its formula changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normula.claims.claim import Measured, TrainedClaim
from normula.claims.reference import copy_race
from normula.claims.runs import jobs
from normula.race.bootstrap import mean_interval
from normula.race.words import count, interval
from normula.record import Figure, Trial

RACES = (copy_race(depth=18, lr=(2e-3, 5e-3)), copy_race(depth=36, lr=1e-3))
STALLED, REPAIRED = 0.5, 0.1
"""Shares of the loss of symbol frequencies: a run that ends above the one has not solved the task, one that ends below
the other has."""


def judge(trials: Sequence[Trial]) -> Measured:
    """Each run of Post-LN that stalls, and its twin with the same depth, rate, seed, batches and matrices."""
    pairs: dict[tuple[int, float], dict[int, dict[str, Trial]]] = {}
    for trial in trials:
        pairs.setdefault((trial.layers, trial.lr), {}).setdefault(trial.seed, {})[trial.name] = trial
    stalled = {
        design: [two for two in seeds.values() if _share(two["post"]) > STALLED] for design, seeds in pairs.items()
    }
    repaired = {design: [two for two in found if _share(two["pre"]) < REPAIRED] for design, found in stalled.items()}
    figures = []
    for (layers, lr), seeds in pairs.items():
        label = f"{layers} layers, rate {lr:g}"
        figures += [
            Figure(
                label=f"{label}: Post-LN stalls, of {count(len(seeds), 'run')}", value=float(len(stalled[layers, lr]))
            ),
            Figure(label=f"{label}: of these Pre-LN repairs", value=float(len(repaired[layers, lr]))),
            *(
                Figure(
                    label=f"{label}: loss of {title}", value=float(np.mean([two[name].loss for two in seeds.values()]))
                )
                for name, title in (("post", "Post-LN"), ("pre", "Pre-LN"))
            ),
        ]
    broken, whole = (sum(map(len, found.values())) for found in (stalled, repaired))
    gaps = [two["post"].loss - two["pre"].loss for found in stalled.values() for two in found]
    return Measured(
        verdict="not shown here"
        if not broken
        else "holds"
        if whole == broken
        else "holds in part"
        if whole
        else "does not hold here",
        figures=tuple(figures),
        text=f"{broken} runs of Post-LN stall; the same runs with x + f(norm(x)) and its closing norm in place of "
        f"norm(x + f(x)) solve the task in {whole}"
        + (f", and end {interval(mean_interval(np.array(gaps)))} nats lower." if gaps else "."),
    )


def _share(trial: Trial) -> float:
    """Of the loss of symbol frequencies; a run that diverged has all of it."""
    return 1.0 if trial.outcome == "diverged" else trial.loss / trial.stuck_loss


CLAIM = TrainedClaim(
    statement="Switching a stalling Post-LN design to Pre-LN, with nothing else changed, repairs it.",
    source="Nguyen and Salazar, Transformers without Tears, 2019; pytorch/pytorch issue 55270",
    how="Three designs that give back 8 random symbols without warmup: 18 layers at 2e-3 and 5e-3, 36 layers at 1e-3; "
    "width 32, Xavier weights, 150 updates of Adam, three seeds. Stalled: above half of the loss of the symbols' "
    "frequencies; repaired: below a tenth.",
    recorded="holds",
    jobs=lambda framework: jobs(RACES, framework),
    judge=judge,
    minutes=1.0,
)
