"""Here live the sentences that the verdicts of a comparison and of a race share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from normula.race.words import count, init_words, listed
from normula.record import Share, Trial

SMALLEST_SHARE = 0.005
"""Of the variance; below it a share is 0 % when rounded."""


def learning(titles: Mapping[str, str], trials: Sequence[Trial]) -> Iterable[str]:
    """Who learns and who does not, under each rule of initial weights.

    Args:
        titles: the contestants by name.
        trials: their runs.
    """
    inits = list(dict.fromkeys(trial.init for trial in trials))
    learns = {
        name: {init: any(t.outcome == "learned" for t in of) for init in inits if (of := _of(trials, name, init))}
        for name in titles
    }
    always = [name for name in titles if not any(learns[name].values())]
    some = [name for name in titles if name not in always and not all(learns[name].values())]
    for name in some:
        bad = [init_words(init) for init, does in learns[name].items() if not does]
        good = [init_words(init) for init, does in learns[name].items() if does]
        others = [learns[other].get(init) for other in titles for init, does in learns[name].items() if not does]
        yield (
            f"{titles[name]} does not learn with {listed(bad)} at any rate tried, and does with {listed(good)}: "
            f"the initial weights decide{' as much as the placement' if any(others) else ''}."
        )
    for name in always:
        yield f"{titles[name]} does not learn at any setting tried."
    partly = [
        name
        for name in titles
        if name not in some + always and any(t.outcome != "learned" for t in trials if t.name == name)
    ]
    for name in partly:
        of = [t for t in trials if t.name == name]
        failed = sum(t.outcome != "learned" for t in of)
        yield f"{titles[name]} fails in {failed} of {count(len(of), 'run')}; see where below."
    rest = [titles[name] for name in titles if name not in some + always + partly]
    if rest:
        yield f"{listed(rest)} {'learns' if len(rest) == 1 else 'learn'} in every run."


def deciding(shares: Sequence[Share]) -> Iterable[str]:
    """Which factor decided most, and the shares of all."""
    if not shares:
        return
    parts = [f"{' x '.join(share.factors)} {share.share:.0%}" for share in shares if share.share >= SMALLEST_SHARE]
    first = shares[0]
    name = f"the combination of {listed(first.factors)}" if len(first.factors) > 1 else f"the {first.factors[0]}"
    if len(first.factors) == 1 and first.factors[0].startswith("all"):
        name = "none of the factors by itself"
    yield f"What decided most is {name}. Of the variance of the final losses: {', '.join(parts)}."


def _of(trials: Sequence[Trial], name: str, init: str) -> list[Trial]:
    return [trial for trial in trials if trial.name == name and trial.init == init]
