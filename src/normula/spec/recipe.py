"""Here lives Recipe: how a model is trained, with nothing left to a framework's default.

The learning rate of update t (from 0) of N is `lr` times a warmup, min(1, (t + 1) / w) over w updates, times a shape:

    constant   1
    linear     1 - p                      p = (t - w) / (N - w), the share of the updates after the warmup that is made
    cosine     (1 + cos(pi p)) / 2        Loshchilov and Hutter, SGDR, 2017, equation 5, one cycle
    rsqrt      sqrt(max(w, 1) / (t + 1))  Vaswani et al., 2017, section 5.3
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from normula.formula.errors import nearest

OPTIMISERS: Mapping[str, str] = {
    "adam": "Kingma and Ba, 2015; epsilon 1e-8; a weight decay is added to the gradient of the matrices",
    "adamw": "Adam with the decay of the matrices apart from the gradient (Loshchilov and Hutter, 2019)",
    "sgd": "no momentum; a weight decay is added to the gradient of the matrices",
}

SHAPES: Mapping[str, Callable[[float, int, int], float]] = {
    "constant": lambda p, t, w: 1.0,
    "linear": lambda p, t, w: 1.0 - p,
    "cosine": lambda p, t, w: (1.0 + math.cos(math.pi * p)) / 2,
    "rsqrt": lambda p, t, w: math.sqrt(max(w, 1) / (t + 1)) if t + 1 > w else 1.0,
}
"""What the rate does after its warmup: from the share p of the updates that is made, the update t, and the warmup w."""

DTYPES = ("float32", "bfloat16")
"""What the products are computed in; weights and the optimiser's state are float32 always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is trained.

        >>> Recipe(steps=100, lr=1e-3, warmup=10).rate(4)
        0.0005

    Args:
        steps: updates.
        lr: the highest learning rate.
        warmup: updates over which the rate rises linearly; 0 for none. With more than `steps` the rate only rises.
        shape: of the rate after the warmup: constant, linear, cosine, rsqrt.
        batch: B, sequences in a batch.
        optimiser: adam, adamw or sgd.
        beta1, beta2: of Adam: how much of the means of the gradient and of its square is kept.
        weight_decay: of the matrices that multiply; gains, biases, scalars and embeddings are never decayed.
        clip: greatest norm c of the gradient g of all parameters together, which becomes g min(1, c / (|g| + 1e-6)), as
            PyTorch has it; None for no clipping, which hides instability.
        dtype: float32 or bfloat16, as each framework has it: PyTorch's autocast keeps the stream in float32, JAX
            computes all but statistics in bfloat16.
        seed: orders the data, and draws the dropout.

    Raises:
        ValueError: a field that cannot be.
    """

    steps: int
    lr: float
    warmup: int = 0
    shape: str = "constant"
    batch: int = 16
    optimiser: str = "adam"
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    clip: float | None = None
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, table in (("shape", SHAPES), ("optimiser", OPTIMISERS), ("dtype", DTYPES)):
            value = getattr(self, name)
            if value not in table:
                raise ValueError(f"{name} is one of {', '.join(table)}, not {value!r}{nearest(str(value), table)}")
        for name in ("steps", "batch"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {getattr(self, name)!r}")
        if not isinstance(self.warmup, int) or self.warmup < 0:
            raise ValueError(f"a warmup is a whole number of at least 0, not {self.warmup!r}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"a learning rate is a positive number, not {self.lr!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is a positive number, or None for no clipping, not {self.clip!r}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay is a number from 0, not {self.weight_decay!r}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is from 0 up to 1, not {getattr(self, name)!r}")

    def rate(self, step: int) -> float:
        """The learning rate of this update, counted from 0."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        share = (step - self.warmup) / (self.steps - self.warmup) if step > self.warmup else 0.0
        return self.lr * rise * SHAPES[self.shape](share, step, self.warmup)
