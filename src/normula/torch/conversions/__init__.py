"""PyTorch's side of conversions: edits on a copy of a model, and how far apart two models are."""

from normula.torch.conversions.edited import edited
from normula.torch.conversions.proof import apart, randomised, wide
from normula.torch.conversions.values import Values, check_convertible

__all__ = ["Values", "apart", "check_convertible", "edited", "randomised", "wide"]
