"""Records of races, of every kind that a page must show."""

import math
from dataclasses import replace

from normula.race import Entry
from normula.race.trial import failure
from normula.record import Race
from tests.race.answers import answered, grid_of, raced, run_of


def whole() -> Race:
    """Four contestants over rate, depth and warmup; one diverges, one gets stuck with some seeds."""
    bad = {"post": 2.77, "deepnorm": math.nan}

    def loss(entry: Entry) -> float:
        if entry.recipe.lr == 1e-1 and entry.name in bad and (entry.spec.layers == 4 or entry.recipe.seed):
            return bad[entry.name]
        return 0.5 + 0.1 * entry.recipe.seed + abs(math.log10(entry.recipe.lr) + 2) + 0.02 * entry.spec.layers

    names = ("pre", "post", "deepnorm", "norm(x + f(x)), final=norm(x)")
    return raced(loss, *names, depth=(2, 4), lr=(1e-3, 1e-2, 1e-1), warmup=(0, 5), seeds=2)


def mixed() -> Race:
    """Runs that failed, were dropped, and are missing; one seed."""
    grid = grid_of("pre", "post", lr=(1e-3, 1e-2), seeds=1)
    first, second, third, _ = grid.entries
    dropped = replace(run_of(second, 1.5, steps=5), outcome="dropped", note="halving: after 5 steps it came 2 of 2")
    trials = [run_of(first, 1.0), dropped, failure(third, "MemoryError: 3 GiB\nmore")]
    return answered(grid, trials, note="interrupted", budget={"halving": True})


def nothing() -> Race:
    return answered(grid_of(), [], note="interrupted")


def hostile() -> Race:
    """Names and notes that would be markup, and a name that would leave its folder."""
    race = raced(lambda entry: 1.0 + entry.recipe.seed, "pre", "post", seeds=2)
    evil = "</title><script>alert(1)</script><img src=x onerror=alert(1)>../../etc\x07"
    contestants = tuple(
        replace(one, title=evil, words=evil, svg=f"<svg><script>{evil}</script></svg>") for one in race.contestants
    )
    trials = tuple(replace(trial, note=evil, outcome="failed") for trial in race.trials)
    return replace(race, contestants=contestants, trials=trials, note=evil)


RACES = {"whole": whole(), "mixed": mixed(), "nothing": nothing(), "hostile": hostile()}
