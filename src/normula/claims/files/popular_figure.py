"""The popular figure, in which Post-LN's gradient vanishes over 20 layers, and what its loss has to do with it."""

from __future__ import annotations

from normula.claims.claim import Claim, Measured
from normula.claims.probe import rounded
from normula.claims.schemes import place
from normula.flow import popular
from normula.flow.findings import NULL
from normula.record import Figure, PopularPoint, Series

DEPTHS = (1, 5, 10, 20)
FIGURE = {"Post-LN": 0.0, "Pre-LN": 35.7888}
"""Gradients at the input after 20 blocks, as the figure prints them."""
NAMES = {"sum": "sum of the output", "random": "random projection of it"}


def measure() -> Measured:
    """Both placements, with the figure's loss and with a random one."""
    stacks = {"Post-LN": place("post", "norm(x + f(x))"), "Pre-LN": place("pre", "x + f(norm(x))")}
    points = {
        (name, point.probe, point.depth): point for name, placed in stacks.items() for point in popular(placed, DEPTHS)
    }
    same = all(abs(points[name, "sum", 20].input_gradient - value) < 5e-4 for name, value in FIGURE.items())
    blind = all(points["Post-LN", "sum", depth].norm_passes < NULL for depth in DEPTHS)
    seen = all(points["Post-LN", "random", depth].norm_passes > NULL for depth in DEPTHS)
    values = {key: rounded(point.input_gradient, 4) for key, point in points.items()}
    said = {(name, "sum", 20): f"{value:.4f}" for name, value in FIGURE.items()}
    figures = tuple(
        Figure(
            label=f"{name}, loss = {NAMES[probe]}: depth {depth}",
            value=values[name, probe, depth],
            expected=said.get((name, probe, depth), ""),
        )
        for probe in NAMES
        for name in stacks
        for depth in (20, 1)
    )
    return Measured(
        verdict="artefact of its probe" if same and blind and seen else "does not hold here",
        figures=figures,
        text="The figure's numbers come out to the digit. But the sum of a LayerNorm's output is a constant, so its "
        "gradient is zero behind one block as behind twenty. With a random projection of the output as the loss, "
        f"Post-LN has {_at(points, 'Post-LN'):.3g} at the input and Pre-LN {_at(points, 'Pre-LN'):.3g}.",
        series=tuple(
            Series(
                label=f"{name}, {probe}",
                x=DEPTHS,
                y=tuple(points[name, probe, depth].input_gradient for depth in DEPTHS),
            )
            for probe in NAMES
            for name in stacks
        ),
        x="blocks",
        y="gradient at the input",
    )


def _at(points: dict[tuple[str, str, int], PopularPoint], name: str) -> float:
    return points[name, "random", 20].input_gradient


CLAIM = Claim(
    statement="After 20 layers Post-LN's gradient at the input has vanished (0.0000), and Pre-LN's has not (35.7888).",
    source="A figure that goes round in tutorials: 20 blocks of one linear map and ReLU, loss = output.sum()",
    how="The figure's own stack, width 64, seed 42 and PyTorch's default weights, with its loss and with a random "
    "projection of the output; the share of the gradient that the last norm lets through says whether a loss is blind.",
    recorded="artefact of its probe",
    measure=measure,
)
