"""Whose features a LayerNorm's mean and variance are taken over."""

from __future__ import annotations

import numpy as np

from normula import oracle
from normula.claims.claim import Claim, Measured
from normula.claims.probe import output, random_gains
from normula.oracle.norms import Array
from normula.record import Figure
from normula.spec import Spec


def measure() -> Measured:
    """A stack that mixes no tokens: change all but one, drop the others, change the batch."""
    spec = Spec(placement="x + f(norm(x))", sublayers=("mlp",), layers=4, width=32)
    weights = random_gains(oracle.weights(spec))
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 7, 32))
    other = 5 * random.standard_normal(x.shape) + 2
    other[1, 4] = x[1, 4]

    def token(tokens: Array, b: int, t: int) -> Array:
        found: Array = output(spec, weights, tokens)[b, t]
        return found

    kept = token(x, 1, 4)
    changes = {
        "the other tokens replaced": token(other, 1, 4),
        "the other sequences left out": token(x[1:2], 0, 4),
        "the sequence cut to the one token": token(x[1:2, 4:5], 0, 0),
    }
    largest = {what: float(np.abs(value - kept).max()) for what, value in changes.items()}
    over_tokens = [(y[1, 4] - y.mean((0, 1))) / y.std((0, 1)) for y in (x, other)]
    seen = float(np.abs(over_tokens[0] - over_tokens[1]).max())
    return Measured(
        verdict="holds" if max(largest.values()) < 1e-12 and seen > 0.1 else "does not hold here",
        figures=(
            *(
                Figure(
                    label=f"largest change of the token, {what}", value=0.0 if value < 1e-12 else value, expected="0"
                )
                for what, value in largest.items()
            ),
            Figure(label="the same, first case, with statistics over the tokens", value=seen),
        ),
        text="Nothing that happens to other tokens or other sequences reaches a token through a norm: the mean and the "
        "variance are over the D features of that token alone. Statistics over tokens and sequences, as in batch "
        "normalisation, would show the change at once.",
    )


CLAIM = Claim(
    statement="The statistics of LayerNorm are per token: they depend neither on the batch nor on the other tokens.",
    source="Ba et al., Layer Normalization, 2016, section 3",
    how="Four Pre-LN layers of MLPs only, width 32, float64: the output at one token while the others are replaced, "
    "cut off or left out; beside it the same change under statistics over the tokens.",
    recorded="holds",
    measure=measure,
)
