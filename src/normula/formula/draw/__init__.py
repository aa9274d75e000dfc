"""The drawn step: a formula as a picture, worked out from its canonical tree.

The skip path is one straight vertical line from x at the bottom to x' at the top. Branches leave it to
the right and come back at a plus; other streams have their own lines on the left.
"""

from normula.formula.draw.svg import svg
from normula.formula.draw.terminal import terminal

__all__ = ["svg", "terminal"]
