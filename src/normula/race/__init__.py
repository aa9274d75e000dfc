"""Placements trained against each other: the same data, weights and budget for all."""

from normula.race.answer import answer
from normula.race.effects import effects
from normula.race.grid import Grid
from normula.race.lane import Lane
from normula.race.limits import Limits
from normula.race.pool import Job, cores, run_all
from normula.race.race import checked, grid_of, outlook, race, read, unchanged
from normula.race.store import Store, StoreError
from normula.race.trial import Entry, run

__all__ = [
    "Entry",
    "Grid",
    "Job",
    "Lane",
    "Limits",
    "Store",
    "StoreError",
    "answer",
    "checked",
    "cores",
    "effects",
    "grid_of",
    "outlook",
    "race",
    "read",
    "run",
    "run_all",
    "unchanged",
]
