"""Whether an identity path makes gradient norms constant: the branches have a say as well."""

from __future__ import annotations

from normula.claims.claim import Claim, Measured
from normula.claims.probe import near
from normula.flow import flow
from normula.record import Figure, Series
from normula.spec import Spec

DEPTHS = (6, 12, 24, 48)
GAIN = 1.32
"""Mean square gain of one step. Backwards through down (D, 4D), ReLU and up, all Xavier of variance 2/(5D):
4D x 2/(5D) x 1/2 x D x 2/(5D) = 0.32 of the square, and the identity's 1, which is independent of it."""
TOLERANCE = 0.15
"""Of a mean over three seeds at the greatest depth."""


def measure() -> Measured:
    """X + f(x) with nothing but MLPs: the skip path is the identity, the gradient grows geometrically."""
    found = [
        flow(Spec(placement="x + f(x)", sublayers=("mlp",), activation="relu", layers=depth, width=128), seeds=3)
        for depth in DEPTHS
    ]
    direct = [one.passes[0].skip_gradient / one.passes[0].output_gradient for one in found]
    whole = [sum(one.input_gradient / one.output_gradient for one in flow.passes) / 3 for flow in found]
    wanted = [GAIN ** (depth / 2) for depth in DEPTHS]
    constant = near(whole[-1], whole[0], TOLERANCE)
    rows = {"all paths": (whole, wanted), "direct path": (direct, [1.0] * len(DEPTHS))}
    figures = [
        Figure(label=f"{name}: 48 to 6 layers", value=values[-1] / values[0], expected=f"{said[-1] / said[0]:.3g}")
        for name, (values, said) in rows.items()
    ]
    figures += [
        Figure(label=f"{name}: {depth} layers", value=value, expected=f"{one:.3g}")
        for name, (values, said) in rows.items()
        for depth, value, one in zip(DEPTHS, values, said, strict=True)
    ]
    close = all(near(value, said, TOLERANCE) for value, said in zip(whole, wanted, strict=True))
    return Measured(
        verdict="does not hold here" if not constant and close else "holds" if constant else "holds in part",
        figures=tuple(figures),
        text=f"The direct path carries exactly 1, and {whole[-1]:.3g} arrives after {DEPTHS[-1]} layers: each branch "
        f"adds 0.32 of the mean square, so the gradient grows as 1.32**(L/2) = {wanted[-1]:.3g}.",
        series=(
            Series(label="direct path", x=DEPTHS, y=tuple(direct)),
            Series(label="all paths", x=DEPTHS, y=tuple(whole)),
            Series(label="1.32**(L/2)", x=DEPTHS, y=tuple(wanted)),
        ),
        x="layers",
        y="gradient at the input over that of the output",
    )


CLAIM = Claim(
    statement="A skip path that is the identity guarantees that gradients keep their norm through the stack.",
    source="Common in tutorials, after He et al., Identity Mappings in Deep Residual Networks, 2016",
    how="x + f(x) without any norm: MLPs of width 128 with ReLU and Xavier weights, 6 to 48 layers, a random "
    "projection of the output, three seeds; held against the closed form 1.32**(L/2).",
    recorded="does not hold here",
    measure=measure,
)
