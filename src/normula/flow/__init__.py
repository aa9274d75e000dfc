"""What a stack does to signal and gradient, measured."""

from normula.flow.depths import depth_point, popular
from normula.flow.flow import flow

__all__ = ["depth_point", "flow", "popular"]
