"""The two-feature example that tells the placements apart with a pencil."""

from __future__ import annotations

import numpy as np

from normula.claims.claim import Claim, Measured
from normula.oracle.norms import layernorm
from normula.record import Figure

EPS = 1e-6


def measure() -> Measured:
    """X = [1, 3], f(z) = 2 z, LayerNorm with gain 1 and bias 0."""
    x = np.array([1.0, 3.0])

    def norm(v: np.ndarray) -> np.ndarray:
        return layernorm(v, np.ones(2), np.zeros(2), EPS)[0]

    pre, post, branch = x + 2 * norm(x), norm(x + 2 * x), x + norm(2 * x)
    wanted = {"x + f(norm(x))": (pre, (-1, 5)), "norm(x + f(x))": (post, (-1, 1)), "x + norm(f(x))": (branch, (0, 4))}
    figures = tuple(
        Figure(label=f"{text}, feature {i + 1}", value=float(value[i]), expected=str(expected[i]))
        for text, (value, expected) in wanted.items()
        for i in range(2)
    )
    gap = max(float(np.abs(value - np.array(expected)).max()) for value, expected in wanted.values())
    return Measured(
        verdict="holds" if gap < 2e-6 else "does not hold here",
        figures=figures,
        text=f"The three placements give three answers, within {gap:.0e} of the whole numbers (epsilon {EPS:g} is "
        "what is missing): [-1, 5], [-1, 1] and [0, 4].",
    )


CLAIM = Claim(
    statement="With x = [1, 3] and f(z) = 2 z, Pre-LN gives [-1, 5] and Post-LN [-1, 1]; x + norm(f(x)) is neither.",
    source="A common exercise; follows from Xiong et al., On Layer Normalization in the Transformer Architecture, "
    "2020, table 1",
    how="The three formulas in float64, LayerNorm with epsilon 1e-6, gain 1, bias 0.",
    recorded="holds",
    measure=measure,
)
