"""`rewire`: change the placement of a model that exists; `convert`: other weights or placement, the same function."""

from normula.rewire.conversions import convert
from normula.rewire.errors import RewireError
from normula.rewire.plan import plan
from normula.rewire.rewire import rewire

__all__ = ["RewireError", "convert", "plan", "rewire"]
