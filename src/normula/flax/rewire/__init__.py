"""JAX's side of rewiring: a model as a function of its weights whose pass follows another formula."""

from normula.flax.rewire.difference import preserved
from normula.flax.rewire.model import Rewired, counted, operated

__all__ = ["Rewired", "counted", "operated", "preserved"]
