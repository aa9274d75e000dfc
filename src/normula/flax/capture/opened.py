"""Here lives Opened: a model as a function of its arrays, which another pass may replace.

It may be a Linen module, `module.bind(variables)` or the module with its variables as the first argument; an NNX
module, of which a copy runs in evaluation mode; any callable that JAX can flatten, such as an Equinox module, whose
fields `inference` are true inside; or a function, of parameters and inputs, or of inputs alone with weights that it
closes over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from normula.flax.capture.recorder import shaped

Kind: TypeAlias = Literal["parameter", "buffer", "input"]
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array that goes into a pass, and where it stands."""

    kind: Kind
    path: Path
    array: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """A model and its arguments, taken apart.

    Attributes:
        leaves: all arrays, in the order in which `call` takes them.
        call: the forward pass as a function of them.
        has_scopes: whether the model marks its operations with the paths of its modules.
    """

    leaves: tuple[Leaf, ...]
    call: Callable[..., Any]
    has_scopes: bool = False

    @property
    def real(self) -> bool:
        """Whether every array has values."""
        return not any(isinstance(leaf.array, jax.ShapeDtypeStruct) for leaf in self.leaves)

    @property
    def closes_over_weights(self) -> bool:
        """Whether what the function closes over must be its weights, for it is given none."""
        return not any(leaf.kind == "parameter" for leaf in self.leaves)

    def traced(self) -> tuple[ClosedJaxpr, Any]:
        """The forward pass as a jaxpr without what nothing reads, and the tree that its results stand in."""
        shapes = [shaped(np.shape(leaf.array), leaf.array.dtype) for leaf in self.leaves]
        whole, result = jax.make_jaxpr(self.call, return_shape=True)(*shapes)
        jaxpr, _ = dce_jaxpr(whole.jaxpr, [True] * len(whole.jaxpr.outvars), instantiate=True)
        return ClosedJaxpr(jaxpr, whole.consts), jax.tree.structure(result)


@dataclass(frozen=True, slots=True)
class _Part:
    """A value with arrays in it, and how it is made of them."""

    leaves: tuple[Leaf, ...]
    made: Callable[[Sequence[Any]], Any]


def opened(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Opened:
    """A model and its arguments, taken apart.

    Raises:
        ValueError: it is no model of JAX, or a Linen module without variables.
    """
    args, kwargs = list(args), dict(kwargs)
    if isinstance(model, linen.Module):
        return _linen(model, args, kwargs)
    if isinstance(model, nnx.Module):
        return _nnx(model, args, kwargs)
    if not callable(model):
        raise ValueError(
            f"A model of JAX that can be read is a module or a function, not {type(model).__qualname__}. "
            "Pass what is called in a forward pass, then example arguments."
        )
    if jax.tree.leaves(model) not in ([model], []):
        return _joined(_part(model, "parameter"), args, kwargs, lambda made, a, k: made(*a, **k))
    return _joined(
        _Part((), lambda _: model), args, kwargs, lambda made, a, k: made(*a, **k), parameters_among(args, kwargs)
    )


def _linen(module: linen.Module, args: list[Any], kwargs: dict[str, Any]) -> Opened:
    if module.scope is not None:
        rngs = dict(module.scope.rngs)
        module, variables = module.unbind()
        if rngs and "rngs" not in kwargs:
            kwargs["rngs"] = {name: getattr(rng, "rng", rng) for name, rng in rngs.items()}
    elif args and isinstance(args[0], Mapping) and all(isinstance(one, Mapping) for one in args[0].values()):
        variables = args.pop(0)
    else:
        raise ValueError(
            "A Linen module is read with its variables: read(module.bind(variables), x), or read(module, variables, x)."
        )
    part = _part(variables, "parameter")
    leaves = tuple(
        replace(leaf, kind="parameter" if leaf.path[0] == "params" else "buffer", path=leaf.path[1:] or leaf.path)
        for leaf in part.leaves
    )
    whole = _joined(_Part(leaves, part.made), args, kwargs, lambda variables, a, k: module.apply(variables, *a, **k))
    return replace(whole, has_scopes=True)


def _nnx(module: nnx.Module, args: list[Any], kwargs: dict[str, Any]) -> Opened:
    graph, *states = nnx.split(module, nnx.Param, ...)
    first, second = (_part(state, "parameter") for state in states)
    count = len(first.leaves)

    def call(arrays: Sequence[Any], a: Sequence[Any], k: Mapping[str, Any]) -> Any:
        copy = nnx.merge(graph, first.made(arrays[:count]), second.made(arrays[count:]))
        copy.eval()  # type: ignore[no-untyped-call]
        return copy(*a, **k)

    buffers = tuple(replace(leaf, kind="buffer") for leaf in second.leaves)
    return _joined(_Part((*first.leaves, *buffers), list), args, kwargs, call)


def _joined(
    model: _Part,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any],
    parameters: int | str | None = None,
) -> Opened:
    """A model and its arguments as one function of all arrays; `parameters` says which argument holds the weights."""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    parts = [_part(value, "parameter" if name == parameters else "input", str(name)) for name, value in named]
    counts = [len(model.leaves), *(len(part.leaves) for part in parts)]

    def run(*arrays: Any) -> Any:
        made, start = [], 0
        for part, count in zip((model, *parts), counts, strict=True):
            made.append(part.made(arrays[start : start + count]))
            start += count
        given, rest = made[1 : 1 + len(args)], made[1 + len(args) :]
        return call(made[0], given, dict(zip(kwargs, rest, strict=True)))

    return Opened((*model.leaves, *(leaf for part in parts for leaf in part.leaves)), run)


def _part(value: Any, kind: Kind, name: str | None = None) -> _Part:
    """A value taken apart; what is no array in it stays."""
    found, tree = jax.tree_util.tree_flatten_with_path(value)
    holds = [is_array(one) for _, one in found]
    leaves = tuple(
        Leaf(
            "buffer" if kind == "parameter" and not _is_float(one) else kind,
            path_of(keys) if kind == "parameter" or name is None else (name, *path_of(keys)),
            one,
        )
        for keys, one in found
        if is_array(one)
    )
    rest = [_evaluating(keys, one) for keys, one in found]

    def made(arrays: Sequence[Any]) -> Any:
        given = iter(arrays)
        return jax.tree_util.tree_unflatten(
            tree, [next(given) if array else one for one, array in zip(rest, holds, strict=True)]
        )

    return _Part(leaves, made)


def _evaluating(keys: Sequence[Any], value: Any) -> Any:
    """A field that is no array; Equinox's modules drop nothing where `inference` is true."""
    return True if value is False and keys and getattr(keys[-1], "name", "") == "inference" else value


def parameters_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | str | None:
    """The argument of a function that holds its weights: the first container of arrays, where there are others."""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    holding = [(name, value) for name, value in named if any(is_array(one) for one in jax.tree.leaves(value))]
    if len(holding) < 2:
        return None
    return next((name for name, value in holding if not is_array(value) and _has_floats(value)), None)


def _has_floats(value: Any) -> bool:
    return any(is_array(one) and _is_float(one) for one in jax.tree.leaves(value))


def is_array(value: Any) -> bool:
    """Whether a value is an array, or stands for one."""
    return isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, np.inexact)


def path_of(keys: Sequence[Any]) -> Path:
    """Where an array stands, in words; a box around it is not said."""
    words = []
    for key in keys:
        word = next((getattr(key, name) for name in ("key", "name", "idx") if hasattr(key, name)), key)
        words.append(str(word))
    while len(words) > 1 and words[-1] == "value" and hasattr(keys[-1], "name"):
        words.pop()
    return tuple(words)
