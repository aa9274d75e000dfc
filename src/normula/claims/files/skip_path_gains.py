"""What the skip path alone carries over a whole stack: closed forms, and the same measured."""

from __future__ import annotations

from math import log, prod, sqrt

from normula.claims.claim import Claim, Measured
from normula.claims.probe import BLOCKS, near
from normula.claims.schemes import SCHEMES
from normula.flow import flow
from normula.formula import Formula, Placement
from normula.record import Figure, Pass, Series
from normula.spec import Spec

WIDTH = 64
TOLERANCE = 0.15
"""Of the mean loss a step, as a logarithm: the closed form takes branches as independent of the stream."""

KNOWN = {
    "Post-LN": (1.6e-2, 6.0e-8, 1.3e-29),
    "Admin, closed form": (0.2675, 0.1372, 0.0704),
    "DeepNorm": (0.9647, 0.9821, 0.9910),
    "Keel": (0.9593, 0.9896, 0.9974),
    "Pre-LN": (0.2774, 0.1429, 0.0720),
}
"""Known values of the closed forms at 6, 24 and 96 blocks."""


def closed_form(name: str, blocks: int) -> float:
    """(a^2 / (a^2 + v))**(S/2) behind the sum, (1 + v S)**(-1/2) for Pre-LN; v = 1, and beta^4 for DeepNorm."""
    S = 2 * blocks
    if name == "Pre-LN":
        return float((1 + S) ** -0.5)
    square = {"Post-LN": 1.0, "Admin, closed form": (S + 1) / log(S + 1) - 1, "DeepNorm": sqrt(S), "Keel": S**2}[name]
    v = 1 / (8 * blocks) if name == "DeepNorm" else 1.0
    return float((square / (square + v)) ** (S / 2))


def measure() -> Measured:
    """The closed forms at three depths; the skip path of real stacks against the sizes that they have."""
    forms = {name: tuple(closed_form(name, blocks) for blocks in BLOCKS) for name in KNOWN}
    exact = all(near(form, said, 0.05) for name in KNOWN for form, said in zip(forms[name], KNOWN[name], strict=True))
    figures = [
        Figure(label=f"{name}: closed form at {blocks} blocks", value=form, expected=f"{said:g}")
        for name in KNOWN
        for blocks, form, said in zip(BLOCKS, forms[name], KNOWN[name], strict=True)
    ]
    agree, lines = True, []
    for name in KNOWN:
        pairs = [_measured(SCHEMES[name], blocks) for blocks in BLOCKS]
        agree = agree and all(abs(log(found / said)) < TOLERANCE * max(1, abs(log(said))) for found, said in pairs)
        figures += [
            Figure(label=f"{name}: measured at {blocks} blocks", value=found, expected=f"{said:.2g}")
            for blocks, (found, said) in zip(BLOCKS, pairs, strict=True)
        ]
        lines.append(Series(label=name, x=BLOCKS, y=tuple(found for found, _ in pairs)))
    return Measured(
        verdict="holds" if exact and agree else "holds in part" if exact else "does not hold here",
        figures=tuple(figures),
        text="The closed forms give the known values, for branches as large as the stream (DeepNorm: as its weights "
        "make them). Stacks at Xavier weights have smaller branches, so their skip paths carry more; what is "
        "measured is the product of a / sqrt(a^2 + v) with the v that each step has. Over depth Post-LN's vanishes "
        "geometrically, Admin's and Pre-LN's fall as 1/sqrt(L), DeepNorm's and Keel's go to 1.",
        series=tuple(lines),
        x="blocks",
        y="gradient on the skip path alone",
    )


def _measured(placed: Placement, blocks: int) -> tuple[float, float]:
    """The skip path's part of a random probe, and what the sizes of skip and branch make of the closed form."""
    init = "paper" if placed.initial else "xavier"
    spec = Spec(placement=placed, layers=blocks, width=WIDTH, init=init, activation="relu")
    one: Pass = flow(spec, seeds=1).passes[0]
    if placed.final == Formula("x"):
        said = prod(step.skip_rms / step.rms_before / sqrt(step.skip_rms**2 + step.branch_rms**2) for step in one.steps)
    else:
        said = 1 / one.steps[-1].rms_after
    return one.skip_gradient / one.output_gradient, said


CLAIM = Claim(
    statement="Over a stack the skip path alone keeps the product of a / sqrt(a^2 + v) of a gradient behind the sum: "
    "nothing for deep Post-LN, 1/sqrt(L) for Admin as for Pre-LN, nearly all for DeepNorm and Keel.",
    source="Follows from the norm's Jacobian (Xiong et al., 2020, lemma 3) with the constants of Wang et al., DeepNet, "
    "2022, Liu et al., Admin, 2020, and Chen and Wei, Post-LayerNorm Is Back, 2026",
    how="The closed forms at 6, 24 and 96 blocks; then stacks of width 64 with every sublayer held constant, held "
    "against the product over the sizes of skip and branch that they have.",
    recorded="holds",
    measure=measure,
)
