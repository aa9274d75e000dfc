"""What Post-LN's norm does to the gradient on the skip path: it depends on the size of the stream."""

from __future__ import annotations

from math import log10, sqrt

import numpy as np

from normula.claims.claim import Claim, Measured
from normula.claims.probe import near
from normula.flow import flow
from normula.record import Figure, Series
from normula.spec import Spec

SIZES = (0.1, 0.3, 1.0, 3.0, 10.0)
WIDTH = 64
TOLERANCE = 0.05
"""The closed form takes the branch as independent of the stream, and a random probe spares the norm's null space."""


def measure() -> Measured:
    """One step, norm(x + f(x)), for streams of several sizes."""
    random = np.random.default_rng(1).standard_normal((4, 16, WIDTH))
    spec = Spec(placement="norm(x + f(x))", layers=1, width=WIDTH, sublayers=("mlp",))
    gains, wanted = [], []
    for size in SIZES:
        one = flow(spec, seeds=1, inputs=size * random).passes[0]
        gains.append(one.skip_gradient / one.output_gradient)
        step = one.steps[0]
        wanted.append(sqrt(1 - 2 / WIDTH) / sqrt(step.skip_rms**2 + step.branch_rms**2))
    logs = tuple(log10(size) for size in SIZES)
    both = gains[0] > 1 > gains[-1]
    close = all(near(gain, value, TOLERANCE) for gain, value in zip(gains, wanted, strict=True))
    return Measured(
        verdict="holds" if both and close else "holds in part" if both else "does not hold here",
        figures=tuple(
            Figure(label=f"gain on the skip, stream of RMS {size:g}", value=gain, expected=f"{value:.3g}")
            for size, gain, value in zip(SIZES, gains, wanted, strict=True)
        ),
        text=f"A stream of RMS {SIZES[0]:g} has its gradient multiplied by {gains[0]:.2f}, one of RMS {SIZES[-1]:g} "
        f"by {gains[-1]:.3f}: the norm's Jacobian is one over the size of x + f(x), less the two directions that it "
        "removes. Inside a stack the stream has size 1 and the sum a larger one, so there the skip path is "
        "attenuated.",
        series=(
            Series(label="measured", x=logs, y=tuple(gains)),
            Series(label="1 / size of the sum", x=logs, y=tuple(wanted)),
        ),
        x="log10 of the stream's RMS",
        y="gain on the skip path",
    )


CLAIM = Claim(
    statement="In Post-LN the gradient on the skip path is modulated by the norm's Jacobian, which may amplify it or "
    "attenuate it.",
    source="Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, lemma 3",
    how="One Post-LN step with an MLP of width 64 and Xavier weights, the sublayer held constant, random streams of "
    "RMS 0.1 to 10; held against sqrt(1 - 2/D) / sqrt(skip^2 + branch^2).",
    recorded="holds",
    measure=measure,
)
