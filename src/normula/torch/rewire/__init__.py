"""PyTorch's side of rewiring: an operation on a copy of a model, and what it changed."""

from normula.torch.rewire.difference import difference
from normula.torch.rewire.operate import arguments, operated, slots

__all__ = ["arguments", "difference", "operated", "slots"]
