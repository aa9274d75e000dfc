"""Spec to Flax module."""

from __future__ import annotations

from collections.abc import Mapping

from normula.flax import linen, nnx
from normula.flax.network import Factory
from normula.spec import Spec


def build(spec: Spec, modules: Mapping[str, Factory] | None = None) -> linen.Stack:
    """A Linen module of a spec: `init` draws from a key, `start()` has the spec's own initial weights.

        >>> import jax, jax.numpy as jnp
        >>> model = build(Spec(placement="pre", layers=2, width=8, heads=2))
        >>> model.apply(model.start(), jnp.zeros((1, 3, 8))).shape
        (1, 3, 8)

    Args:
        spec: what to build.
        modules: for sublayers of your own, a function from the layer (from 0) to a Linen or NNX module or a function.

    Raises:
        ValueError: the spec cannot be built; the message says why.
    """
    return linen.Stack(spec, modules)


def build_nnx(spec: Spec, modules: Mapping[str, Factory] | None = None) -> nnx.Stack:
    """An NNX module of a spec, with the spec's own initial weights; arguments and errors as for `build`."""
    return nnx.Stack(spec, modules)


BUILDERS = {"flax": build, "linen": build, "nnx": build_nnx}
"""By the names that a user can give."""
