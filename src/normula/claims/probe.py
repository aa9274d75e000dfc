"""What several claims measure with: one small language model at its start, and how numbers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normula import oracle
from normula.data import Batch
from normula.formula import Placement
from normula.framework import room
from normula.oracle.norms import Array
from normula.spec import Spec

VOCABULARY = 256
BLOCKS = (6, 24, 96)
"""Depths at which stacks are compared; from the first to the last the depth grows by 16."""


def language(placement: Placement, layers: int, *, seed: int = 0, **fields: Any) -> Spec:
    """A decoder of width 128: four heads, ReLU, no biases, V = 256, Xavier weights with the placement's own factor."""
    defaults = {"width": 128, "heads": 4, "init": "paper" if placement.initial else "xavier"}
    sizes = {"activation": "relu", "bias": False, "causal": True, "vocab": VOCABULARY, "context": 64}
    return Spec(placement=placement, layers=layers, seed=seed, **{**defaults, **sizes, **fields})


def random_tokens(seed: int, batch: int = 4, tokens: int = 64) -> Batch:
    """Random ids that go in, and random ids that should come out."""
    inputs, targets = np.random.default_rng([seed, 9]).integers(0, VOCABULARY, (2, batch, tokens))
    return Batch(inputs, targets)


def start(spec: Spec, *weights: str) -> Any:
    """The loss on random tokens at the initial weights, and its gradients."""
    return room().start(spec, random_tokens(spec.seed), weights)


def last_down(spec: Spec) -> str:
    """The matrix with which the last block writes to the stream."""
    return f"layers.{spec.layers - 1}.mlp.f.down.weight"


def random_gains(weights: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    """The same weights with random gains and biases of the norms: at 1 and 0 several placements agree."""
    random = np.random.default_rng([seed, 11])
    return {
        name: array + 0.3 * random.standard_normal(array.shape) if "norm" in name else array
        for name, array in weights.items()
    }


def apart(one: Array, other: Array) -> float:
    """How far two results lie apart: the norm of the difference over that of the first."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


def output(spec: Spec, weights: dict[str, Array], x: Array) -> Array:
    """What a stack on vectors makes of x, in float64."""
    return oracle.run(spec, weights, x).output


def near(value: float, wanted: float, share: float) -> bool:
    """Whether a value is within a share of the one wanted."""
    return abs(value / wanted - 1) <= share


def spread(values: Sequence[float]) -> float:
    """How far values lie from their mean at most, as a share of it."""
    mean = sum(values) / len(values)
    return max(abs(value / mean - 1) for value in values)


def coarse(value: float) -> float:
    """To two digits: what explodes or collapses takes its rounding along, and the third differs between machines."""
    return float(f"{value:.2g}")


def rounded(gap: float, places: int = 9) -> float:
    """A gap that should be rounding, to so many places: 0 where it is, and then the same on every machine."""
    return round(gap, places)
