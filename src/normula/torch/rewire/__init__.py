"""PyTorch's side of rewiring: an operation on a copy of a model, and what it preserves."""

from normula.torch.rewire.check import check
from normula.torch.rewire.difference import preserved
from normula.torch.rewire.initial import reinitialise
from normula.torch.rewire.move import carry, go, set_modes
from normula.torch.rewire.operate import arguments, counted, operated, slots
from normula.torch.rewire.remapped import remapped
from normula.torch.rewire.training import check_task, distilling, held_out, where

__all__ = [
    "arguments",
    "carry",
    "check",
    "check_task",
    "counted",
    "distilling",
    "go",
    "held_out",
    "operated",
    "preserved",
    "reinitialise",
    "remapped",
    "set_modes",
    "slots",
    "where",
]
