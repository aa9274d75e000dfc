"""Placements trained against each other: the same data, weights and budget for all."""

from normula.race.effects import effects
from normula.race.pool import Job, cores, run_all
from normula.race.trial import Entry, run

__all__ = ["Entry", "Job", "cores", "effects", "run", "run_all"]
