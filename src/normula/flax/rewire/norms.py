"""Norms by what was read of them: over any axes, with gains and biases of any shape that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp


def normalised(
    kind: str, x: Any, axes: tuple[int, ...], under: float, vectors: Mapping[str, Any], scale: float = 1.0
) -> Any:
    """A norm of x, of the same shape and type.

    Args:
        kind: layernorm, rmsnorm, l2norm, dyt or derf.
        x: what is normalised.
        axes: that its statistics are over, from the last.
        under: what is added to the square of the divisor.
        vectors: its gain (or scale), bias, alpha and shift, as far as it has them.
        scale: a number that it multiplies by, before the gain.
    """
    wide = jnp.promote_types(x.dtype, jnp.float32)
    own = {"gain" if name == "scale" else name: jnp.asarray(one).astype(wide) for name, one in vectors.items()}
    y = x.astype(wide)
    if kind in ("dyt", "derf"):
        y = own["alpha"] * y + own.get("shift", 0.0)
        y = jnp.tanh(y) if kind == "dyt" else jax.scipy.special.erf(y)
    else:
        y = y - y.mean(axes, keepdims=True) if kind == "layernorm" else y
        square = (jnp.sum if kind == "l2norm" else jnp.mean)(jnp.square(y), axis=axes, keepdims=True)
        y = y * jax.lax.rsqrt(square + under)
        y = y if scale == 1.0 else scale * y
    y = _fitted(own["gain"], axes, y) * y if "gain" in own else y
    y = y + _fitted(own["bias"], axes, y) if "bias" in own else y
    return y.astype(x.dtype)


def _fitted(vector: Any, axes: tuple[int, ...], x: Any) -> Any:
    """A vector along the axis of the features."""
    if vector.ndim != 1 or axes[0] == -1:
        return vector
    return vector.reshape(vector.shape + (1,) * (-1 - axes[0]))
