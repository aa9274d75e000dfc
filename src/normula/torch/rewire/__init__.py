"""PyTorch's side of rewiring: an operation on a copy of a model, and what it preserves."""

from normula.torch.rewire.check import check
from normula.torch.rewire.difference import preserved
from normula.torch.rewire.initial import reinitialise
from normula.torch.rewire.operate import arguments, counted, operated, slots

__all__ = ["arguments", "check", "counted", "operated", "preserved", "reinitialise", "slots"]
