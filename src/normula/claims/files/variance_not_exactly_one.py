"""What epsilon does to the variance of a normalised token."""

from __future__ import annotations

import numpy as np

from normula.claims.claim import Claim, Measured
from normula.oracle.norms import layernorm
from normula.record import Figure, Series

EPS = 1e-5
VARIANCES = (1.0, 1e-2, 1e-4, 1e-5, 1e-6, 1e-8)
WIDTH = 64


def measure() -> Measured:
    """One token at several variances, through LayerNorm with PyTorch's default epsilon."""
    token = np.random.default_rng(0).standard_normal(WIDTH)
    token = (token - token.mean()) / token.std()
    found = [
        float(layernorm(np.sqrt(variance) * token + 3, np.ones(WIDTH), np.zeros(WIDTH), EPS)[0].var())
        for variance in VARIANCES
    ]
    wanted = [variance / (variance + EPS) for variance in VARIANCES]
    gap = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
    below = all(value < 1 for value in found)
    return Measured(
        verdict="holds" if gap < 1e-9 and below else "holds in part" if below else "does not hold here",
        figures=tuple(
            Figure(
                label=f"1 - variance of the output, input's {variance:g}", value=1 - value, expected=f"{1 - said:.3g}"
            )
            for variance, value, said in zip(VARIANCES, found, wanted, strict=True)
        ),
        text="The output has the variance var / (var + eps): 1 less a hundred-thousandth for a token of variance 1, "
        "one half where the variance is epsilon, and next to nothing below.",
        series=(Series(label="variance of the output", x=tuple(np.log10(VARIANCES).tolist()), y=tuple(found)),),
        x="log10 of the input's variance",
        y="variance of the output",
    )


CLAIM = Claim(
    statement="Normalised values do not have exactly unit variance, because epsilon stands under the root.",
    source="Follows from Ba et al., Layer Normalization, 2016, with the epsilon of every implementation",
    how="A token of 64 features, mean 3 and variance 1 to 1e-8, through LayerNorm with epsilon 1e-5 in float64; held "
    "against var / (var + eps).",
    recorded="holds",
    measure=measure,
)
