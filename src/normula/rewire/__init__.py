"""`rewire`: change the placement of a model that exists; `convert`: other weights or placement, the same function."""

from normula.rewire.conversions import convert
from normula.rewire.errors import RewireError
from normula.rewire.migrate import migrate
from normula.rewire.migration import Migration, migration
from normula.rewire.plan import plan
from normula.rewire.remap import remap
from normula.rewire.rewire import rewire

__all__ = ["Migration", "RewireError", "convert", "migrate", "migration", "plan", "remap", "rewire"]
