"""How far one update moves a model, by depth: DeepNet's bound under its own assumptions and without them."""

from __future__ import annotations

from normula.claims.claim import Claim, Measured
from normula.claims.probe import language, random_tokens, spread
from normula.claims.schemes import SCHEMES
from normula.formula import Placement
from normula.framework import room
from normula.record import Figure, Series
from normula.spec import plan

DEPTHS = (6, 24, 100)
CASES = {
    "SGD, branches": ("sgd", 0.1, True),
    "SGD, all": ("sgd", 0.1, False),
    "Adam, all": ("adam", 1e-3, False),
}
KNOWN: dict[tuple[str, str], tuple[float, float | None, float]] = {
    ("DeepNorm", "SGD, branches"): (0.0050, 0.0046, 0.0048),
    ("DeepNorm", "SGD, all"): (0.021, None, 0.226),
    ("DeepNorm", "Adam, all"): (0.075, 0.160, 0.476),
    ("Post-LN", "SGD, branches"): (0.564, None, 1.30),
    ("Post-LN", "Adam, all"): (0.716, 1.27, 1.14),
    ("Pre-LN", "SGD, branches"): (0.177, None, 0.641),
    ("Pre-LN", "Adam, all"): (0.396, 0.960, 1.30),
}
"""From an independent implementation, at 6, 24 and 100 blocks; None where it has no number."""
FLAT = 0.2
"""Twice what the known values of the flat case differ by."""


def measure() -> Measured:
    """The relative change of the logits of one batch after one update on it."""
    found = {key: [_update(SCHEMES[key[0]], depth, *CASES[key[1]]) for depth in DEPTHS] for key in KNOWN}
    flat = {case: spread(found["DeepNorm", case]) <= FLAT for case in CASES}
    under = flat["SGD, branches"] and not any(
        spread(found[name, "SGD, branches"]) <= FLAT for name in ("Post-LN", "Pre-LN")
    )
    figures = [
        Figure(
            label=f"{name}, {case}: {DEPTHS[-1]} to {DEPTHS[0]} blocks",
            value=values[-1] / values[0],
            expected=f"{KNOWN[name, case][-1] / KNOWN[name, case][0]:.2g}",
        )
        for (name, case), values in found.items()
    ]
    figures += [
        Figure(label=f"{name}, {case}: {depth} blocks", value=value, expected="" if said is None else f"{said:g}")
        for (name, case), values in found.items()
        for depth, value, said in zip(DEPTHS, values, KNOWN[name, case], strict=True)
    ]
    branches, everything, adam = (found["DeepNorm", case] for case in CASES)
    return Measured(
        verdict="holds" if under and all(flat.values()) else "holds in part" if under else "does not hold here",
        figures=tuple(figures),
        text="With SGD on the weights of the branches, DeepNorm's update is the same at each depth "
        f"({min(branches):.2g} to {max(branches):.2g} of the logits), as the theorem has it, and Post-LN's and "
        "Pre-LN's are not. Outside its assumptions it grows: with SGD on all parameters, norms and embedding too, "
        f"from {everything[0]:.2g} to {everything[-1]:.2g}, and with Adam from {adam[0]:.2g} to {adam[-1]:.2g}. It "
        "stays the smallest of the three.",
        series=tuple(
            Series(label=f"{name}, {case}", x=DEPTHS, y=tuple(values))
            for (name, case), values in found.items()
            if case != "SGD, all"
        ),
        x="blocks",
        y="relative change of the logits",
    )


def _update(placed: Placement, depth: int, optimiser: str, lr: float, branches: bool) -> float:
    spec = language(placed, depth, width=64, hidden=128, heads=2)
    roles = {name: parameter.role.kind for name, parameter in plan(spec).parameters.items()}
    weights = [name for name, kind in roles.items() if kind in ("matrix", "writer")] if branches else None
    value: float = room().one_step_update(spec, random_tokens(0), optimiser=optimiser, lr=lr, weights=weights)
    return value


CLAIM = Claim(
    statement="DeepNorm bounds the model's update by a constant, whatever the depth.",
    source="Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022, theorem 4.2 and figure 5",
    how="A decoder of width 64 (hidden 128, two heads) at 6, 24 and 100 blocks: |F1 - F0| / |F0| of the logits "
    "after one step on one random batch, with SGD (0.1) on the branches' matrices, with SGD on all parameters, with "
    "Adam (1e-3).",
    recorded="holds in part",
    measure=measure,
)
