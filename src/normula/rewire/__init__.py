"""`rewire`: change the placement of a model that exists."""

from normula.rewire.errors import RewireError
from normula.rewire.plan import plan
from normula.rewire.rewire import rewire

__all__ = ["RewireError", "plan", "rewire"]
