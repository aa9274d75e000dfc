"""A Post-LN stack is the stack that takes its residual after the norm, with every norm one slot later."""

from __future__ import annotations

import numpy as np

from normula import oracle
from normula.claims.claim import Claim, Measured
from normula.claims.probe import apart, output, random_gains, rounded
from normula.claims.schemes import place
from normula.record import Figure
from normula.spec import Spec

LAYERS, WIDTH = 6, 32


def measure() -> Measured:
    """The same weights in both, the norms moved by one slot; then not moved; then without the norm before the stack."""
    post = Spec(placement="norm(x + f(x))", embed="norm(x)", layers=LAYERS, width=WIDTH)
    shifted = Spec(placement=place("shifted", "n = norm(x); n + f(n)", "norm(x)"), layers=LAYERS, width=WIDTH)
    weights = random_gains(oracle.weights(shifted))
    slots = [name for name in weights if "norm" in name and name.endswith(".weight")]
    slots = [name.removesuffix(".weight") for name in slots]  # the order in which they are applied
    bare = {name: array for name, array in weights.items() if "norm" not in name}

    def into_post(norms: list[str]) -> dict[str, np.ndarray]:
        homes = ["embed.norm", *(slot.replace("norm_in", "norm_sum") for slot in slots[:-1])]
        pairs = [(home, slot, part) for home, slot in zip(homes, norms, strict=True) for part in ("weight", "bias")]
        return bare | {f"{home}.{part}": weights[f"{slot}.{part}"] for home, slot, part in pairs}

    random = np.random.default_rng(0)
    x, direction = random.standard_normal((2, 2, 5, WIDTH))
    runs = oracle.run(shifted, weights, x), oracle.run(post, into_post(slots), x)
    forward = apart(runs[0].output, runs[1].output)
    backward = apart(*(run.pullback(direction)[0] for run in runs))
    unmoved = apart(runs[0].output, output(post, into_post([slots[-1], *slots[:-1]]), x))
    plain = Spec(placement="norm(x + f(x))", layers=LAYERS, width=WIDTH)
    without = {name: array for name, array in into_post(slots).items() if not name.startswith("embed")}
    opened = apart(runs[0].output, output(plain, without, x))
    equal = max(forward, backward) < 1e-12
    return Measured(
        verdict="holds" if equal and min(unmoved, opened) > 0.01 else "does not hold here",
        figures=(
            Figure(label="|difference| / |output|", value=rounded(forward), expected="0"),
            Figure(label="the same of the gradient at the input", value=rounded(backward), expected="0"),
            Figure(label="norms left in their slots", value=unmoved),
            Figure(label="no norm before the stack", value=opened),
        ),
        text="Output and gradient agree to twelve digits where each norm moves one slot on: what ends one sublayer "
        "begins the next. The norm before the stack and the moving are both needed; without either it is another "
        "function.",
    )


CLAIM = Claim(
    statement="A Post-LN stack with a norm on the embedding equals n = norm(x); n + f(n) with every norm moved one "
    "slot and the last one as the final norm.",
    source="Used by inference libraries that run one placement with the other's kernels, such as LightSeq",
    how="Six layers of width 32 with random gains and biases in the norms, float64: output and gradient; then with the "
    "norms not moved, and without the norm on the embedding.",
    recorded="holds",
    measure=measure,
)
