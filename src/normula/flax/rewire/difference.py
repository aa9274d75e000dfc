"""What a rewiring of a model of JAX preserves, found by running both models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from normula.flax.capture.drawn import drawn
from normula.flax.rewire.model import Arrays, How, Rewired, copies, held, without
from normula.record.rewiring import Preserved

SEED: Final = 7

EXACT: Final = {"float64": 1e-10, "float32": 1e-5}
"""Relative change of the outputs up to which two models are the same, by rounding; a half-precision model's is 1e-2."""


def preserved(model: Any, new: Rewired, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Preserved, float]:
    """What stays of a model, and how far the outputs on the example are from what they were.

    Three comparisons: at the model's own weights; with random gains and biases, the same in both; with the gains of all
    norms on the stream at 1 and their biases at 0.

    Returns:
        What stays; and the root mean square of the change over that of the old outputs, at the model's own weights.
    """
    how, own = new._how, held(model, args, kwargs)
    change = _change(new, own, args, kwargs)
    floats = [one for one in own.values() if jnp.issubdtype(one.dtype, np.floating)]
    exact = EXACT.get(str(floats[0].dtype) if floats else "float32", 1e-2)
    random = {name: jnp.asarray(drawn(array, SEED + place)) for place, (name, array) in enumerate(own.items())}
    if _change(new, random, args, kwargs) < exact:
        return "function", change
    if _change(new, {**own, **_bare(how, own, args, kwargs)}, args, kwargs) < exact:
        return "function at initialisation", change
    return "parameters", change


def _change(new: Rewired, arrays: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The change of the outputs where the old model has these weights."""
    how = new._how
    rest, named = without(how, args, kwargs)
    both = {name: arrays.get(name, one) for name, one in new.parameters.items()}
    whole = how.opened(arrays, rest, named)
    before = _floats(whole.call(*(leaf.array for leaf in whole.leaves)))
    after = _floats(new.apply({**both, **copies(how, arrays, args, kwargs)}, *rest, **named))
    if [one.shape for one in before] != [one.shape for one in after]:
        return float("inf")
    change = sum(float(np.square(one - other).sum()) for one, other in zip(before, after, strict=True))
    whole_size = sum(float(np.square(one).sum()) for one in before)
    return float((change / whole_size) ** 0.5) if whole_size else 0.0 if change == 0 else float("inf")


def _floats(result: Any) -> list[Any]:
    leaves = [jnp.asarray(one) for one in jax.tree.leaves(result)]
    return [np.asarray(one, np.float64) for one in leaves if jnp.issubdtype(one.dtype, np.floating)]


def _bare(how: How, own: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Gain 1 and bias 0 for the norms on the stream, whatever is written for that: some multiply by 1 + weight."""
    norms = [how.operation.own[path] for path in how.operation.bare]
    names = [name for norm in norms for name in norm.names if name in own]
    found = {name: jnp.zeros_like(own[name]) for name in names}
    for value in (1.0, 0.0):
        tried = {**found, **{name: jnp.full_like(own[name], value) for name in names}}
        whole = how.opened({**own, **tried}, *without(how, args, kwargs))
        vectors = how.looked_at(whole, whole.traced()[0], {**own, **tried})
        for norm in norms:
            if norm.gain >= 0 and norm.names and bool((jnp.asarray(vectors[norm.gain]) == 1).all()):
                found |= {norm.names[0]: tried[norm.names[0]]} if norm.names[0] in tried else {}
    return found
