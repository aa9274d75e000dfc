"""Here live sublayers that come as modules of their own: Linen modules, NNX modules and plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from flax import linen, nnx
from jax import Array


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A sublayer that is not built from a spec.

    Attributes:
        kind: equal for two that differ in nothing but their parameters.
        start: its parameters, where it was made with them; None where they are drawn.
        init: from a key and an example (B, T, D) to its parameters, a tree of arrays.
        apply: from its parameters, x, the key of its dropout (None for no dropout) to what comes out.
    """

    kind: Any
    start: Any
    init: Callable[[Array, Array], Any]
    apply: Callable[[Any, Array, Array | None], Array]


def given(word: str, maker: Callable[[int], Any], layer: int) -> Given:
    """What a maker makes for a layer.

    Raises:
        ValueError: a module instead of a maker, something that is no module, or a module that keeps a state.
    """
    if isinstance(maker, linen.Module | nnx.Module):
        raise ValueError(
            f"modules[{word!r}] is one module, and every layer needs its own; give a function such as "
            f"lambda layer: {type(maker).__name__}(...)"
        )
    with jax.ensure_compile_time_eval():  # the first look at a stack may be under jit, and what is made is kept
        made = maker(layer)
    if isinstance(made, linen.Module):
        return _linen(made.clone(parent=None, name=None))  # apart from the module in whose call it was made
    if isinstance(made, nnx.Module):
        return _nnx(word, made)
    if callable(made):
        return Given(kind=made, start={}, init=lambda key, x: {}, apply=lambda own, x, key: made(x))
    raise ValueError(f"a maker of sublayers returns a module or a function for each layer, not {type(made).__name__}")


def _linen(module: linen.Module) -> Given:
    def init(key: Array, x: Array) -> Any:
        variables: Any = module.init(key, x, **_mode(module, None))
        if others := set(variables) - {"params"}:
            raise ValueError(
                f"{type(module).__name__} has the collections {', '.join(sorted(others))}; a sublayer has params only"
            )
        return linen.meta.unbox(variables.get("params", {}))

    def apply(own: Any, x: Array, key: Array | None) -> Array:
        rngs = None if key is None else {"dropout": key}
        y: Any = module.apply({"params": own}, x, rngs=rngs, **_mode(module, key))
        return y  # type: ignore[no-any-return]

    return Given(kind=module, start=None, init=init, apply=apply)


def _nnx(word: str, module: nnx.Module) -> Given:
    graph, *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
    parameters, randomness, others = states
    if jax.tree.leaves(others):
        raise ValueError(f"modules[{word!r}] keeps a state besides its parameters, and a sublayer has parameters only")
    start = nnx.to_pure_dict(parameters)

    def apply(own: Any, x: Array, key: Array | None) -> Array:
        state = jax.tree.map(lambda one: one, parameters)
        nnx.replace_by_pure_dict(state, own)
        own_keys = jax.tree.map(lambda one: one, randomness)  # fresh, as a trace may not write to what lies outside
        live = nnx.merge(graph, state, own_keys)
        live.set_attributes(deterministic=key is None, raise_if_not_found=False)
        if key is not None:
            nnx.reseed(live, default=key, dropout=key)
        y: Array = live(x, **_mode(live, key))
        return y

    return Given(kind=graph, start=start, init=lambda key, x: start, apply=apply)


def _mode(module: Any, key: Array | None) -> dict[str, Any]:
    """`deterministic`, for a module whose call takes it."""
    takes = "deterministic" in inspect.signature(type(module).__call__).parameters
    return {"deterministic": key is None} if takes else {}
