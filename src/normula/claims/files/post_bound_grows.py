"""A misquotation: that Post-LN's last gradient grows with depth."""

from __future__ import annotations

from math import log

import numpy as np

from normula.claims.claim import Claim, Measured
from normula.claims.xiong import DEPTHS, toy
from normula.record import Figure, Series

GROWS = 0.1
"""An exponent of L that would count as growth: 48 blocks would then have 1.4 times the gradient of 2."""


def measure() -> Measured:
    """The exponent p of |dloss/dW_2| ~ L**p, for both placements."""
    found = {name: list(toy(pre=pre)[1].values()) for name, pre in (("Post-LN", False), ("Pre-LN", True))}
    slopes = {name: float(np.polyfit([log(block) for block in DEPTHS], np.log(ys), 1)[0]) for name, ys in found.items()}
    said = {"Post-LN": "0: the bound has no L in it", "Pre-LN": "-0.5"}
    figures = [Figure(label=f"exponent of L, {name}", value=slopes[name], expected=said[name]) for name in found]
    figures += [
        Figure(label=f"Post-LN, {block} blocks", value=found["Post-LN"][DEPTHS.index(block)]) for block in (2, 12, 48)
    ]
    return Measured(
        verdict="holds" if slopes["Post-LN"] > GROWS else "does not hold here",
        figures=tuple(figures),
        text=f"Post-LN's gradient goes as L**{slopes['Post-LN']:.2f}: it does not grow. The bound of the theorem is "
        "O(d sqrt(ln d)) for Post-LN and O(d sqrt(ln d / L)) for Pre-LN; what depends on depth is Pre-LN's, which "
        "falls.",
        series=tuple(Series(label=name, x=DEPTHS, y=tuple(ys)) for name, ys in found.items()),
        x="blocks",
        y="gradient of the last W2",
    )


CLAIM = Claim(
    statement="The gradient of the last layer grows with depth under Post-LN, which is why it needs warmup.",
    source="Often quoted from Xiong et al., 2020, theorem 1, which says otherwise",
    how="The theory's own stack (see xiong-gradients) at 2 to 48 blocks; a power of L fitted to the gradient of the "
    "last MLP's second matrix.",
    recorded="does not hold here",
    measure=measure,
)
