"""x + norm(f(x)) is neither Pre-LN nor Post-LN."""

from __future__ import annotations

import numpy as np

from normula import oracle
from normula.claims.claim import Claim, Measured
from normula.claims.probe import apart, output, random_gains
from normula.formula import Formula
from normula.oracle.norms import Array
from normula.record import Figure
from normula.spec import Spec

TEXTS = {"x + f(norm(x))": "norm_in", "norm(x + f(x))": "norm_sum", "x + norm(f(x))": "norm_out"}
"""Three placements of one norm a step, and what the norm is called at its site."""
BRANCH = "x + norm(f(x))"


def measure() -> Measured:
    """One layer with the same weights in the three; then with what writes to the stream doubled."""
    start = random_gains(oracle.weights(Spec(placement=BRANCH, final="x", layers=1, width=32, eps=0.0)))
    doubled = {name: 2 * array if ".o." in name or ".down." in name else array for name, array in start.items()}
    x = np.random.default_rng(0).standard_normal((2, 5, 32))

    def run(text: str, weights: dict[str, Array]) -> Array:
        spec = Spec(placement=text, final="x", layers=1, width=32, eps=0.0)
        return output(spec, {name.replace("norm_out", TEXTS[text]): array for name, array in weights.items()}, x)

    once, twice = ({text: run(text, weights) for text in TEXTS} for weights in (start, doubled))
    gaps = {text: apart(once[BRANCH], once[text]) for text in TEXTS if text != BRANCH}
    moved = {text: apart(once[text], twice[text]) for text in TEXTS}
    deaf = moved[BRANCH] < 1e-12 < 0.01 < min(value for text, value in moved.items() if text != BRANCH)
    other = min(gaps.values()) > 0.01 and len({Formula(text) for text in TEXTS}) == 3
    figures = [
        Figure(label=f"{BRANCH} against {text}, |difference| / |output|", value=gap) for text, gap in gaps.items()
    ]
    figures += [
        Figure(
            label=f"{text}, output matrices doubled",
            value=0.0 if value < 1e-12 else value,
            expected="0" if text == BRANCH else "",
        )
        for text, value in moved.items()
    ]
    return Measured(
        verdict="holds" if other and deaf else "holds in part" if other else "does not hold here",
        figures=tuple(figures),
        text="With the same weights the three give three outputs. The norm on the branch has a mark of its own: its "
        "output does not depend on the size of the sublayer's last matrix. It leaves the skip path open, as Pre-LN, "
        "and feeds the sublayer the raw stream, as Post-LN.",
    )


CLAIM = Claim(
    statement="x + norm(f(x)) is neither Pre-LN nor Post-LN, whatever it is called.",
    source="Liu et al., Swin Transformer V2, 2022 (res-post-norm); OLMo Team, 2 OLMo 2 Furious, 2025 (reordered norm)",
    how="One layer of width 32 with the same weights and random gains in each of the three formulas, float64, "
    "epsilon 0; then with the matrices that write to the stream doubled.",
    recorded="holds",
    measure=measure,
)
