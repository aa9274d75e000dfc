"""Post-LN, DeepNorm and Keel as Pre-LN with a step relative to the size of the stream."""

from __future__ import annotations

import numpy as np

from normula.claims.claim import Claim, Measured
from normula.claims.probe import near, rounded
from normula.oracle.mlp import mlp
from normula.oracle.norms import Array, layernorm, rmsnorm
from normula.record import Figure, Series

WIDTH, STEPS, SEEDS = 32, 24, 20
SCALES = {"Post-LN": 1.0, "DeepNorm": float((2 * STEPS) ** 0.25), "Keel": float(2 * STEPS)}
"""The factor a on the skip; those of an independent check of the same identity."""
BRANCH = 0.5
"""Mean square of relu(x W1) W2 for x of mean square 1 and weights of variance 1 over their inputs."""


def measure() -> Measured:
    """P = norm(a p + f(p)) and q = q + size(q) f(norm(q)) / a side by side; at each step p is norm(q)."""
    gaps = {name: max(_pair(a, kind, 0)[0] for kind in ("rmsnorm", "layernorm")) for name, a in SCALES.items()}
    with_gain = _pair(1.0, "rmsnorm", 0, gain=0.3)[0]
    growth = {name: _growth(a) for name, a in SCALES.items()}
    wanted = {name: (1 + BRANCH / a**2) ** (STEPS / 2) for name, a in SCALES.items()}
    ends = {name: float(sizes[-1] / sizes[0]) for name, sizes in growth.items()}
    grows = all(near(ends[name], wanted[name], 0.25) for name in SCALES)
    figures = [
        Figure(label=f"{name}: largest |p - norm(q)|", value=rounded(gap), expected="0") for name, gap in gaps.items()
    ]
    figures += [Figure(label="Post-LN with random gains: largest |p - norm(q)|", value=with_gain)]
    figures += [
        Figure(label=f"{n}: growth of q over {STEPS} sublayers", value=ends[n], expected=f"{wanted[n]:.3g}")
        for n in SCALES
    ]
    return Measured(
        verdict="holds"
        if max(gaps.values()) < 1e-12 < 0.01 < with_gain and grows
        else "holds in part"
        if grows
        else "does not hold here",
        figures=tuple(figures),
        text="p is norm(q) at every step, to twelve digits, with RMSNorm and with LayerNorm (whose size is the "
        "standard deviation). So Post-LN is Pre-LN with steps relative to the stream; its hidden stream grows "
        f"{ends['Post-LN']:.0f} times over {STEPS} sublayers, DeepNorm's {ends['DeepNorm']:.2f} times and Keel's "
        f"{ends['Keel']:.3f} times. With gains the skip path carries them, and the identity is lost.",
        series=tuple(Series(label=n, x=tuple(range(STEPS + 1)), y=tuple(growth[n].tolist())) for n in SCALES),
        x="sublayer",
        y="RMS of q",
    )


def _growth(a: float) -> Array:
    """RMS(q) along the steps, geometric mean over the seeds."""
    sizes: Array = np.exp(np.mean([np.log(_pair(a, "rmsnorm", seed)[1]) for seed in range(SEEDS)], axis=0))
    return sizes


def _pair(a: float, kind: str, seed: int, gain: float = 0.0) -> tuple[float, Array]:
    """The largest |p - norm(q)| over all steps, and RMS(q) before the first step and after each."""
    random = np.random.default_rng([seed, 13])
    gains, zeros = 1 + gain * random.standard_normal(WIDTH), np.zeros(WIDTH)

    def norm(x: Array) -> Array:
        return rmsnorm(x, gains, 0.0)[0] if kind == "rmsnorm" else layernorm(x, gains, zeros, 0.0)[0]

    q = random.standard_normal((16, WIDTH))
    p, gap, sizes = norm(q), 0.0, [float(np.sqrt(np.mean(q**2)))]
    for _ in range(STEPS):
        up, down = random.standard_normal((4 * WIDTH, WIDTH)), random.standard_normal((WIDTH, 4 * WIDTH))
        weights = {"up.weight": up / np.sqrt(WIDTH), "down.weight": down / np.sqrt(4 * WIDTH)}
        size = np.sqrt(np.mean(q**2, axis=-1, keepdims=True)) if kind == "rmsnorm" else q.std(axis=-1, keepdims=True)
        q = q + size * mlp(norm(q), weights, activation="relu")[0] / a
        p = norm(a * p + mlp(p, weights, activation="relu")[0])
        gap = max(gap, float(np.abs(p - norm(q)).max()))
        sizes.append(float(np.sqrt(np.mean(q**2))))
    return gap, np.array(sizes)


CLAIM = Claim(
    statement="With no gain and bias on the norm after the sum, norm(a x + f(x)) is Pre-LN with a relative step: "
    "q + RMS(q) f(norm(q)) / a, read out through the norm.",
    source="An identity: normalisation forgets the size of its input, so the size can be carried along instead",
    how="Width 32, 24 sublayers of ReLU MLPs with weights N(0, 1/inputs), epsilon 0, float64; a = 1, 48**(1/4) and 48. "
    "The growth of q, over twenty seeds, against (1 + v/a^2)**(24/2) with the branch's mean square v = 1/2.",
    recorded="holds",
    measure=measure,
)
