"""The stack of Xiong et al.'s theory, in float64.

One head whose queries and keys are zero, so that attention is the mean over the tokens times W_V; an MLP
relu(h W_1) W_2 of the same width; matrices N(0, 1/d), tokens N(0, 1), norms without gain and bias; a head
N(0, 1/d) on 1000 classes, random labels, mean cross-entropy. A Pre-LN stack ends in a norm. d = 256, 64 tokens.

Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from normula.oracle.norms import Array, layernorm

WIDTH, TOKENS, CLASSES, EPS, SEEDS = 256, 64, 1000, 1e-8, 6
DEPTHS = (2, 6, 8, 10, 12, 14, 24, 48)

Pull = Callable[[Array], tuple[Array, ...]]


def norm(x: Array) -> tuple[Array, Pull]:
    """LayerNorm without gain and bias."""
    return layernorm(x, np.ones(WIDTH), np.zeros(WIDTH), EPS)


@cache
def toy(pre: bool) -> tuple[dict[int, float], dict[int, float]]:
    """|x|^2/d of the stream at each block, and |dloss/dW_2| of the last block of a stack of each of DEPTHS.

    The stream is x after the block for Pre-LN, and for Post-LN the sum before the block's second norm.
    Means over the seeds; a stack of l blocks is the first l of the deepest.
    """
    seeds = [_one(pre, seed) for seed in range(SEEDS)]
    sizes, gradients = ({key: fmean(one[i][key] for one in seeds) for key in seeds[0][i]} for i in (0, 1))
    return sizes, gradients


def _one(pre: bool, seed: int) -> tuple[dict[int, float], dict[int, float]]:
    random = np.random.default_rng([seed, 12])
    x = random.standard_normal((TOKENS, WIDTH))
    head = random.standard_normal((WIDTH, CLASSES)) / np.sqrt(WIDTH)
    labels = random.integers(0, CLASSES, TOKENS)
    sizes, gradients = {}, {}
    for block in range(1, max(DEPTHS) + 1):
        V, W1, W2 = random.standard_normal((3, WIDTH, WIDTH)) / np.sqrt(WIDTH)
        if pre:
            x = x + norm(x)[0].mean(axis=0) @ V
            hidden = np.maximum(norm(x)[0] @ W1, 0)
            stream = x + hidden @ W2
        else:
            x = norm(x + x.mean(axis=0) @ V)[0]
            hidden = np.maximum(x @ W1, 0)
            stream = x + hidden @ W2
        out, pull = norm(stream)
        x = stream if pre else out
        sizes[block] = float(np.mean(stream**2))
        if block in DEPTHS:
            gradients[block] = float(np.linalg.norm(hidden.T @ pull(_dloss(out @ head, labels) @ head.T)[0]))
    return sizes, gradients


def _dloss(logits: Array, labels: NDArray[np.int64]) -> Array:
    """The gradient of the mean cross-entropy with respect to the logits."""
    shares: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    return shares / len(labels)
