"""`guard`: checkpoints that know their formula, and load into no other."""

from normula.guard.checking import check
from normula.guard.loading import load, put_unstamped, verify
from normula.guard.saving import inspect, save
from normula.guard.stamping import stamp
from normula.guard.watching import Watch, watching
from normula.record.tensorfile import WeightsError

__all__ = ["Watch", "WeightsError", "check", "inspect", "load", "put_unstamped", "save", "stamp", "verify", "watching"]
