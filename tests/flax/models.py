"""Networks of specs in JAX, with random weights: one compiled call gives the output and every gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from normula.flax import apply, network, to_tree
from normula.oracle import norms
from normula.spec import Spec
from tests.cases import PADDED, SOURCE_PADDED, random_inputs, random_weights

Arrays = dict[str, norms.Array]


def outcome(
    spec: Spec,
    arrays: Mapping[str, norms.Array],
    arguments: Mapping[str, Any],
    direction: norms.Array | None = None,
    dtype: Any = jnp.float32,
    run: Callable[..., Array] = apply,
    **settings: Any,
) -> tuple[norms.Array, Arrays, norms.Array | None]:
    """Output, gradients of sum(direction * output) by the plan's names, and the input's where it is vectors.

    All of it, the way from the plan's arrays to the tree too, is one compiled call.
    """
    net = network(spec)
    given = {name: value for name, value in arguments.items() if value is not None}

    def loss(arrays: Any, inputs: Array, others: dict[str, Array]) -> tuple[Array, Array]:
        output = run(net, to_tree(net, arrays), inputs, **others, **settings)
        along = jnp.ones_like(output) if direction is None else jnp.asarray(direction, dtype)
        return (output * along).sum(), output

    whole = jax.jit(jax.value_and_grad(loss, (0, 1) if spec.vocab is None else (0,), has_aux=True))
    typed = cast({"inputs": given.pop("inputs")}, dtype)["inputs"]
    (_, output), found = whole(cast(arrays, dtype), typed, cast(given, dtype))
    own = {name: np.asarray(gradient) for name, gradient in found[0].items()}
    return np.asarray(output), own, np.asarray(found[1]) if spec.vocab is None else None


def cast(arrays: Mapping[str, Any], dtype: Any) -> Arrays:
    """Floating-point arrays in one type; ids and masks as they are."""
    found = {name: np.asarray(array) for name, array in arrays.items()}
    return {
        name: array.astype(dtype) if np.issubdtype(array.dtype, np.floating) else array for name, array in found.items()
    }


def arguments_of(spec: Spec, padded: bool = True) -> dict[str, Any]:
    """The arguments of a pass by name, with padding on every side there is."""
    found: dict[str, Any] = {"inputs": random_inputs(spec), "mask": PADDED if padded else None}
    if spec.encoder is not None:
        found |= {"source": random_inputs(spec.encoder, seed=2, tokens=4)}
        found |= {"source_mask": SOURCE_PADDED if padded else None}
    return found


def params_of(spec: Spec, dtype: Any = jnp.float32) -> Any:
    """The tree of random weights."""
    return to_tree(network(spec), cast(random_weights(spec), dtype))


def x_of(spec: Spec, **sizes: int) -> Array:
    """Input in JAX's default type."""
    return jnp.asarray(random_inputs(spec, **sizes))


def assert_same(actual: Any, expected: Any) -> None:
    """Trees equal bit for bit."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, one), other in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))
