"""Two reference races with the losses that an independent implementation gives, and their grids.

The copy race: 8 symbols of 16 are given back, width 32, two heads, ReLU, Adam, batch 16, 150 updates; mean of the last
10 training losses, one number a seed; chance is ln 16 = 2.77.

The ranking: 15 symbols of 15 are repeated behind a separator, 12 blocks of width 64 (hidden 128, two heads, no biases),
Adam (0.9, 0.98), batch 32, 400 updates; mean of the last 20 training losses, two seeds; chance is ln 15 = 2.71.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normula.claims.schemes import SCHEMES
from normula.race import Grid, Lane

Losses = tuple[float, ...]

COPY: Mapping[tuple[int, float], Mapping[tuple[str, int], Losses]] = {
    (6, 1e-3): {("post", 0): (0.06,), ("post", 75): (0.09,), ("pre", 0): (0.06,), ("pre", 75): (0.10,)},
    (6, 5e-3): {("post", 0): (0.004,), ("post", 75): (0.008,), ("pre", 0): (0.004,), ("pre", 75): (0.008,)},
    (18, 1e-3): {
        ("post", 0): (0.86, 2.67, 2.32, 2.68),
        ("post", 75): (0.12, 0.11, 0.13, 0.11),
        ("pre", 0): (0.06, 0.06, 0.06, 0.06),
        ("pre", 75): (0.09, 0.10, 0.09, 0.09),
    },
    (18, 5e-3): {
        ("post", 0): (2.78,),
        ("post", 75): (2.80, 2.79, 2.78, 0.82),
        ("pre", 0): (0.004, 0.004, 0.004, 0.004),
        ("pre", 75): (0.008,),
    },
    (36, 1e-3): {("post", 0): (2.78,), ("post", 75): (2.71,), ("pre", 0): (0.06,), ("pre", 75): (0.09,)},
    (36, 5e-3): {("post", 0): (2.78,), ("post", 75): (2.78,), ("pre", 0): (0.005,), ("pre", 75): (0.008,)},
}
"""By depth and rate, contestant and warmup; Xavier weights."""

WEIGHTS: Mapping[tuple[str, float], Mapping[str, Losses]] = {
    ("xavier_qkv", 1e-3): {"post": (0.86, 2.67, 2.32), "pre": (0.06, 0.06, 0.06)},
    ("torch", 1e-3): {"post": (0.06, 0.06, 0.06), "pre": (0.06, 0.06, 0.05)},
    ("normal", 1e-3): {"post": (0.06, 0.06, 0.06), "pre": (0.06, 0.06, 0.06)},
    ("torch", 5e-3): {"post": (0.007, 0.006, 0.006), "pre": (0.004, 0.004, 0.004)},
    ("normal", 5e-3): {"post": (0.004, 0.003, 0.003), "pre": (0.004, 0.003, 0.003)},
}
"""Of the copy race at depth 18 without warmup: by initial weights and rate, and contestant."""

RATES = (3e-4, 1e-3, 3e-3, 1e-2)
WARMUPS = (0, 200)

_RANKING: Mapping[str, Sequence[Losses | None]] = {
    "Post-LN": (
        (1.71, 1.74),
        (1.94, 1.91),
        (2.06, 2.00),
        (1.42, 1.49),
        (2.72, 2.68),
        (1.81, 1.83),
        (2.71, 2.71),
        (2.72, 2.71),
    ),
    "Pre-LN": (
        (1.47, 1.48),
        (1.69, 1.78),
        (0.39, 0.22),
        (0.63, 0.68),
        (0.18, 0.09),
        (0.14, 0.12),
        (2.40, 2.41),
        (0.06, 0.09),
    ),
    "Pre-LN, scaled weights": (
        (1.32, 1.34),
        (1.68, 1.65),
        (0.15, 0.14),
        (0.21, 0.20),
        (0.12, 0.14),
        (0.11, 0.06),
        None,
        None,
    ),
    "DeepNorm": (
        (1.84, 1.88),
        (2.11, 2.12),
        (0.27, 0.27),
        (0.99, 0.87),
        (0.10, 0.12),
        (0.12, 0.14),
        (0.07, 0.44),
        (0.09, 0.11),
    ),
    "Admin, closed form": (
        (1.51, 1.62),
        (1.75, 1.88),
        (0.26, 0.17),
        (0.59, 0.75),
        (0.13, 0.10),
        (0.26, 0.14),
        None,
        None,
    ),
    "Keel": (
        (2.18, 2.14),
        (2.33, 2.29),
        (0.40, 0.35),
        (1.12, 1.16),
        (0.10, 0.09),
        (0.15, 0.16),
        (0.05, 0.08),
        (0.12, 0.09),
    ),
    "Peri-LN": (
        (1.50, 1.55),
        (1.71, 1.78),
        (0.41, 0.45),
        (0.60, 0.85),
        (0.10, 0.10),
        (0.11, 0.12),
        (2.18, 0.21),
        (0.11, 0.12),
    ),
    "LayerNorm Scaling": (
        (1.95, 1.96),
        (2.18, 2.16),
        (0.59, 0.48),
        (0.99, 0.93),
        (0.11, 0.12),
        (0.13, 0.08),
        (1.06, 2.13),
        (0.09, 0.08),
    ),
    "output norm": (
        (1.95, 1.98),
        (2.12, 2.19),
        (1.81, 1.76),
        (1.74, 1.77),
        (2.30, 2.05),
        (1.99, 1.91),
        None,
        None,
    ),
    "output and query-key norm": (
        None,
        None,
        (0.38, 0.53),
        (0.71, 0.75),
        (0.13, 0.11),
        (0.11, 0.11),
        (0.01, 0.04),
        (0.10, 0.06),
    ),
    "ReZero": (
        (2.24, 2.18),
        (2.40, 2.37),
        (0.53, 0.50),
        (1.32, 1.48),
        (0.07, 0.06),
        (0.16, 0.14),
        None,
        None,
    ),
}
"""By rate and warmup in the order of RATES and WARMUPS; None where there is no number."""

RANKING: Mapping[str, Mapping[tuple[float, int], Losses]] = {
    name: {
        point: losses
        for point, losses in zip(((lr, warmup) for lr in RATES for warmup in WARMUPS), row, strict=True)
        if losses is not None
    }
    for name, row in _RANKING.items()
}
"""By scheme; by rate and warmup."""


def copy_race(**fields: Any) -> Grid:
    """The copy race."""
    usual: dict[str, Any] = {"placements": ("post", "pre"), "task": "copy", "init": "xavier_qkv", "seeds": 3}
    return Grid(**(usual | fields))


def ranking(**fields: Any) -> Grid:
    """The ranking, of all its schemes."""
    usual: dict[str, Any] = {
        "placements": tuple(lane(name) for name in RANKING),
        "task": "repeat",
        "depth": 12,
        "width": 64,
        "hidden": 128,
        "bias": False,
        "batch": 32,
        "beta2": 0.98,
        "steps": 400,
        "lr": RATES,
        "warmup": WARMUPS,
        "seeds": 2,
    }
    return Grid(**(usual | fields))


def lane(name: str) -> Lane:
    """A scheme as a contestant: Xavier weights with the factor that its paper states."""
    scheme = SCHEMES[name]
    return Lane(placement=scheme, name=name, init="paper" if scheme.initial else "xavier")
