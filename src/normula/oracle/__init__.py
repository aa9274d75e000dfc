"""NumPy float64: slow, short, true. What every framework is held against."""

from normula.oracle.initial import draw, weights
from normula.oracle.stack import Run, run

__all__ = ["Run", "draw", "run", "weights"]
