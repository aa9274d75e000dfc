"""PyTorch's side of conversions: edits on a copy of a model, and how far apart two models are."""

from normula.torch.conversions.edited import edited
from normula.torch.conversions.proof import apart, outputs, randomised, wide
from normula.torch.conversions.rebuilt import is_own, rebuilt
from normula.torch.conversions.values import Values, check_convertible

__all__ = ["Values", "apart", "check_convertible", "edited", "is_own", "outputs", "randomised", "rebuilt", "wide"]
