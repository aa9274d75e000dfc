"""What a stack does to signal and gradient, measured."""

from normula.flow.depths import depth_point, popular
from normula.flow.flow import flow
from normula.flow.reading import flow_of

__all__ = ["depth_point", "flow", "flow_of", "popular"]
