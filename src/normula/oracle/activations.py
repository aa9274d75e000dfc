"""Here live the activations, one number at a time: relu, gelu in both forms, silu.

Each returns `(value, pullback)`; `pullback(dy)` is the one-tuple (dy * f'(x),). Phi is the distribution function of the
standard normal, phi its density. Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv 1606.08415.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from normula.oracle.norms import Array, Pullback


def relu(x: Array) -> tuple[Array, Pullback]:
    """Keep what is positive: y = max(x, 0); the gradient at zero is taken as zero.

    >>> relu(np.array([-2.0, 3.0]))[0]
    array([0., 3.])
    """
    return np.maximum(x, 0), lambda dy: (dy * (x > 0),)


def gelu(x: Array) -> tuple[Array, Pullback]:
    """Weight x by the normal distribution function, exactly: y = x Phi(x); y' = Phi(x) + x phi(x).

    >>> gelu(np.array([0.0, 100.0]))[0]
    array([  0., 100.])
    """
    # Phi(x) = erfc(-x / sqrt 2) / 2 keeps its digits where x is very negative; (1 + erf(x / sqrt 2)) / 2 cancels there.
    below = np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2)) / 2
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return x * below, lambda dy: (dy * (below + x * density),)


def gelu_tanh(x: Array) -> tuple[Array, Pullback]:
    """Approximate `gelu` as the paper does: y = x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3).

    >>> gelu_tanh(np.array([0.0, 100.0]))[0]
    array([  0., 100.])
    """
    c, cubic = math.sqrt(2 / math.pi), 0.044715  # both from the paper, section 2
    t = np.tanh(c * (x + cubic * x**3))
    slope = (1 + t) / 2 + x * (1 - t**2) / 2 * c * (1 + 3 * cubic * x**2)
    return x * (1 + t) / 2, lambda dy: (dy * slope,)


def silu(x: Array) -> tuple[Array, Pullback]:
    """Weight x by its sigmoid: y = x s with s = sigmoid(x) = 1 / (1 + exp(-x)); y' = s + x s (1 - s).

    >>> silu(np.array([0.0, 100.0]))[0]
    array([  0., 100.])
    """
    s = np.exp(-np.logaddexp(0, -x))  # = 1 / (1 + exp(-x)) without the overflow
    return x * s, lambda dy: (dy * (s + x * s * (1 - s)),)


ACTIVATION_FUNCTIONS: Mapping[str, Callable[[Array], tuple[Array, Pullback]]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}
