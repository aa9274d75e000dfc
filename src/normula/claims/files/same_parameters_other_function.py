"""Pre-LN and Post-LN have the same parameters, and are not the same function."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from normula import oracle
from normula.claims.claim import Claim, Measured
from normula.claims.probe import apart, output, random_gains
from normula.record import Figure
from normula.spec import Spec, plan

TEXTS = {"Pre-LN": "x + f(norm(x))", "Post-LN": "norm(x + f(x))"}


def measure() -> Measured:
    """Shapes and counts from the plans; then one set of weights in both, and each in itself."""
    specs = {name: Spec(placement=text, final="x", layers=6, width=32) for name, text in TEXTS.items()}
    shapes = {name: [parameter.shape for parameter in plan(spec).parameters.values()] for name, spec in specs.items()}
    counts = {name: sum(map(prod, found)) for name, found in shapes.items()}
    weights = random_gains(oracle.weights(specs["Pre-LN"]))
    swapped = {name.replace("norm_in", "norm_sum"): array for name, array in weights.items()}
    x = np.random.default_rng(0).standard_normal((2, 5, 32))
    pre, post = output(specs["Pre-LN"], weights, x), output(specs["Post-LN"], swapped, x)
    same = Counter(shapes["Pre-LN"]) == Counter(shapes["Post-LN"]) and set(swapped) == set(
        plan(specs["Post-LN"]).parameters
    )
    differ = apart(pre, post) > 0.1
    return Measured(
        verdict="holds" if same and differ else "holds in part" if same else "does not hold here",
        figures=(
            Figure(label="parameters, Pre-LN", value=counts["Pre-LN"]),
            Figure(label="parameters, Post-LN", value=counts["Post-LN"], expected=str(counts["Pre-LN"])),
            Figure(label="output with the placement swapped, |difference| / |output|", value=apart(pre, post)),
            Figure(label="what Pre-LN's final norm adds, in parameters", value=2 * 32, expected="2 D"),
        ),
        text="Layer for layer the two have parameters of the same shapes and number, so where the names agree, "
        f"weights of one load into the other without an error. The output then is off by {apart(pre, post):.0%} of "
        "its size. Only the final norm that closes a Pre-LN stack makes a difference that a loader can see.",
    )


CLAIM = Claim(
    statement="Pre-LN and Post-LN layers have parameters of the same shapes and the same number; swapping the "
    "placement under a set of weights changes the function.",
    source="Follows from Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, table 1",
    how="Six layers of width 32 without a final norm, random gains and biases in the norms; the weights of one "
    "placement in the other, float64.",
    recorded="holds",
    measure=measure,
)
