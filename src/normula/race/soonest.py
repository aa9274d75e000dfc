"""In which framework a race is made soonest on this machine: found by timing, as it depends on depth, width and steps.

A step that is compiled whole is cheaper, and compiling costs seconds in every process for every kind of run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from normula.framework import check_installed
from normula.race.estimate import duration, estimate
from normula.race.grid import Grid
from normula.race.limits import Limits
from normula.race.trial import Entry

SOONEST: Final = "soonest"
"""What is said in place of a framework."""

PLAIN, COMPILED = "torch", "flax"

WORTH_TIMING = 60.0
"""Seconds of a race in PyTorch from which on a step compiled by JAX is timed too: that alone takes about ten."""


def soonest(grid: Grid, limits: Limits, say: Callable[[str], None]) -> Grid:
    """The grid in the framework in which its runs are made soonest, all included.

    Args:
        grid: in PyTorch.
        limits: of the race.
        say: is told what was found.
    """
    try:
        check_installed(COMPILED)
        other = replace(grid, framework=COMPILED)
    except (ImportError, ValueError) as error:
        say(f"made in {PLAIN}: {error}")
        return grid
    plain = _seconds(grid, limits)
    if plain < WORTH_TIMING:
        say(f"made in {PLAIN}: about {duration(plain)}, too short for a compiled step to be worth timing")
        return grid
    compiled = _seconds(other, limits)
    chosen = other if compiled < plain else grid
    say(f"made in {chosen.framework}: about {duration(plain)} in {PLAIN}, {duration(compiled)} in {COMPILED}")
    return chosen


def _seconds(grid: Grid, limits: Limits) -> float:
    entries: Sequence[Entry] = grid.entries[: limits.trials]
    with limits.opened(grid) as engine:
        return estimate(engine, entries, halving=limits.halving).all(entries)
