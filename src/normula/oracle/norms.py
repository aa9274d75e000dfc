"""Here live the norms: what each does to the features of one token, and its gradient.

Every operation returns `(value, pullback)`. With y = f(x, w, ...), `pullback(dy)` takes the gradient of a loss with
respect to y and returns the gradients with respect to x, w, ..., in the order of the array arguments: the transposed
Jacobian applied to dy. Arrays have the shape (..., D); statistics are over the last axis, the features of one token.

Statistics take two passes: the mean first, then the mean square of the deviations from it. In one pass, as
mean(x^2) - mean(x)^2, two large numbers that nearly cancel leave only their rounding. The variance is the biased one,
divided by D and not by D - 1.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from normula.spec.kinds import NORM_KINDS

Array = NDArray[np.float64]
Pullback = Callable[[Array], tuple[Array, ...]]
NamedPullback = Callable[[Array], tuple[Array, dict[str, Array]]]


def layernorm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Pullback]:
    """Subtract the mean, divide by the standard deviation: y = weight * (x - mean) / sqrt(variance + eps) + bias.

    With s = sqrt(variance + eps), n = (x - mean) / s and g = weight * dy, dx = (g - mean(g) - n mean(g n)) / s:
    what lies along the constant vector and what lies along n is taken out of the gradient.
    x is (..., D); weight and bias are (D,). Ba, Kiros, Hinton, Layer Normalization, 2016, arXiv 1607.06450, equation 3.

    >>> layernorm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2), 0.0)[0]
    array([-1.,  1.])
    """
    centred = x - _mean(x)
    spread = np.sqrt(_mean(centred**2) + eps)
    normal = centred / spread

    def pullback(dy: Array) -> tuple[Array, ...]:
        g = dy * weight
        dx = (g - _mean(g) - normal * _mean(g * normal)) / spread
        return dx, _over_tokens(dy * normal), _over_tokens(dy)

    return weight * normal + bias, pullback


def rmsnorm(x: Array, weight: Array, eps: float) -> tuple[Array, Pullback]:
    """Divide by the root mean square: y = weight * x / sqrt(mean(x^2) + eps).

    With s = sqrt(mean(x^2) + eps), n = x / s and g = weight * dy, dx = (g - n mean(g n)) / s.
    x is (..., D); weight is (D,). Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, equation 4.
    Differs: the paper has no eps.

    >>> rmsnorm(np.array([3.0, -3.0]), np.ones(2), 0.0)[0]
    array([ 1., -1.])
    """
    size = np.sqrt(_mean(x**2) + eps)
    normal = x / size

    def pullback(dy: Array) -> tuple[Array, ...]:
        g = dy * weight
        return (g - normal * _mean(g * normal)) / size, _over_tokens(dy * normal)

    return weight * normal, pullback


def l2norm(x: Array, eps: float) -> tuple[Array, Pullback]:
    """Divide by the length: y = x / sqrt(sum(x^2) + eps), which has length 1 where `rmsnorm` gives sqrt(D).

    dx = (dy - y sum(dy y)) / sqrt(sum(x^2) + eps). x is (..., D).
    Differs: `torch.nn.functional.normalize` divides by max(length, eps). Here eps is under the root, as in the other
    norms, and so the function is smooth at zero.

    >>> l2norm(np.array([3.0, 4.0]), 0.0)[0]
    array([0.6, 0.8])
    """
    length = np.sqrt(_sum(x**2) + eps)
    y = x / length

    def pullback(dy: Array) -> tuple[Array, ...]:
        return ((dy - y * _sum(dy * y)) / length,)

    return y, pullback


def dyt(x: Array, alpha: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """Dynamic tanh, squashed without statistics: y = weight * tanh(alpha x) + bias.

    x is (..., D); alpha is a scalar, shape (); weight and bias are (D,).
    Zhu, Chen, He, LeCun, Liu, Transformers without Normalization, 2025, arXiv 2503.10622.

    >>> dyt(np.array([0.0, 100.0]), np.array(0.5), np.ones(2), np.zeros(2))[0]
    array([0., 1.])
    """
    squashed = np.tanh(alpha * x)

    def pullback(dy: Array) -> tuple[Array, ...]:
        du = dy * weight * (1 - squashed**2)
        return du * alpha, np.asarray(np.sum(du * x)), _over_tokens(dy * squashed), _over_tokens(dy)

    return weight * squashed + bias, pullback


def derf(x: Array, alpha: Array, shift: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """Dynamic erf, squashed without statistics: y = weight * erf(alpha x + shift) + bias.

    erf'(u) = 2/sqrt(pi) exp(-u^2). x is (..., D); alpha and shift are scalars, shape (); weight and bias are (D,).
    Chen, Lu, Zhu, Sun, Liu, Stronger Normalization-Free Transformers, 2025, arXiv 2512.10938.

    >>> derf(np.array([-0.5, 100.0]), np.array(2.0), np.array(1.0), np.ones(2), np.zeros(2))[0]
    array([0., 1.])
    """
    u = alpha * x + shift
    squashed = erf(u)

    def pullback(dy: Array) -> tuple[Array, ...]:
        du = dy * weight * (2 / math.sqrt(math.pi)) * np.exp(-(u**2))
        dalpha, dshift = np.asarray(np.sum(du * x)), np.asarray(np.sum(du))
        return du * alpha, dalpha, dshift, _over_tokens(dy * squashed), _over_tokens(dy)

    return weight * squashed + bias, pullback


def none(x: Array) -> tuple[Array, Pullback]:
    """The identity: y = x, dx = dy.

    >>> none(np.array([1.0, 3.0]))[0]
    array([1., 3.])
    """
    return x, lambda dy: (dy,)


NORMS: Mapping[str, Callable[..., tuple[Array, Pullback]]] = {
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "l2norm": l2norm,
    "dyt": dyt,
    "derf": derf,
    "none": none,
}


def normalise(kind: str, x: Array, parameters: Mapping[str, Array], *, eps: float) -> tuple[Array, NamedPullback]:
    """Apply the norm of this kind, its parameters by name; `pullback(dy)` returns (dx, gradients by the same names).

    x is (..., D); the names and shapes of the parameters are those in `NORM_KINDS[kind]`.

    >>> y, pullback = normalise("rmsnorm", np.array([3.0, -3.0]), {"weight": np.ones(2)}, eps=0.0)
    >>> pullback(np.array([1.0, 0.0]))[1]
    {'weight': array([1., 0.])}
    """
    names = [parameter.name for parameter in NORM_KINDS[kind].parameters]
    epsilon = (eps,) if NORM_KINDS[kind].uses_eps else ()
    y, pull = NORMS[kind](x, *(parameters[name] for name in names), *epsilon)

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, *gradients = pull(dy)
        return dx, dict(zip(names, gradients, strict=True))

    return y, pullback


def erf(x: Array) -> Array:
    """The error function, one element at a time: NumPy has none.

    >>> erf(np.array([0.0, 100.0]))
    array([0., 1.])
    """
    values: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return values


def _mean(x: Array) -> Array:
    mean: Array = np.mean(x, axis=-1, keepdims=True)
    return mean


def _sum(x: Array) -> Array:
    total: Array = np.sum(x, axis=-1, keepdims=True)
    return total


def _over_tokens(gradient: Array) -> Array:
    """A parameter is shared by all tokens, so its gradient is the sum of theirs: (..., D) -> (D,)."""
    total: Array = gradient.reshape(-1, gradient.shape[-1]).sum(axis=0)
    return total
