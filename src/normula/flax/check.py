"""Whether parameters and arguments belong to a network: said by site, with both formulas where they can be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array

from normula.catalog import entries
from normula.flax.network import Network, network
from normula.flax.tree import Path, flat, leaves
from normula.spec import Spec
from normula.spec.stamp import stamp

POLICIES = ("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable")
"""Those of `jax.checkpoint_policies` that are policies; its other functions make one from names, and as policies would
save everything."""


class TreeError(ValueError):
    """Parameters of another network."""


def check_tree(network: Network, params: Mapping[str, Any]) -> None:
    """Compare paths and shapes with the network's own.

    Raises:
        TreeError: they differ; the message says where, and which formula they are of where that can be told.
    """
    own = {leaf.path: leaf.shape for leaf in leaves(network)}
    given = {path: array for path, array in flat(params).items() if not _is_of_module(network, path)}
    missing, unexpected = own.keys() - given.keys(), given.keys() - own.keys()
    shapes = [
        f"{'/'.join(path)} has the shape {tuple(given[path].shape)}, here it is {shape}"
        for path, shape in own.items()
        if path in given and tuple(given[path].shape) != shape
    ]
    said = []
    if missing:
        said.append(f"missing: {_listed(missing)}")
    if unexpected:
        said.append(f"not of this model: {_listed(unexpected)}")
    if shapes:
        said.append("; ".join(shapes[:3]) + (f"; and {len(shapes) - 3} more" if len(shapes) > 3 else ""))
    if said:
        spec = network.spec
        other = _other_formula(spec, given) if missing or unexpected else None
        of = f" They fit {other}." if other else ""
        what = f"{spec.placed.formula}, {spec.layers} layers, width {spec.width}, {spec.norm}"
        raise TreeError(f"these parameters are not of this model ({what}). {'. '.join(said)}.{of}")


def check_formula(network: Network, formula: str) -> None:
    """Compare the formula that parameters carry with the network's.

    Raises:
        TreeError: they differ; the message names both.
    """
    own = stamp(network.spec)
    if formula != own:
        raise TreeError(
            f"these parameters are of {formula} and this model is {own}; the shapes fit, and the function would be "
            "another one. To move them all the same, pass {'params': variables['params']} alone"
        )


def check_arguments(
    network: Network,
    params: Mapping[str, Any],
    inputs: Array,
    mask: Array | None,
    source: Array | None,
    source_mask: Array | None,
    dtype: Any,
    deterministic: bool | None,
    key: Array | None,
    remat: str | None,
) -> Any:
    """Check what goes in.

    Returns:
        The type that values are computed in.

    Raises:
        ValueError: another shape or type than the spec has, parameters of several types, a source without an encoder
            or the other way round, dropout without its key.
    """
    spec = network.spec
    _check_input(network, inputs)
    computed = _computed_type(params, inputs, spec, dtype)
    if mask is not None and mask.shape != inputs.shape[:2]:
        raise ValueError(f"a mask has the shape (B, T) = {inputs.shape[:2]}, this one has {mask.shape}")
    if (source is None) != (network.encoder is None):
        raise ValueError("a source goes with an encoder: give both or neither")
    if source_mask is not None and (source is None or source_mask.shape != source.shape[:2]):
        raise ValueError("a source_mask says which tokens (B, S) of a source are real; it has the source's first axes")
    if source is not None and network.encoder is not None:
        _check_input(network.encoder, jnp.asarray(source))
    if spec.dropout and deterministic is None:
        raise ValueError(
            f"the spec has dropout {spec.dropout:g}: say deterministic=True for evaluation, or deterministic=False and "
            "a key for training"
        )
    if spec.dropout and not deterministic and key is None:
        raise ValueError("dropout needs a key: give rngs={'dropout': jax.random.key(0)}, or deterministic=True")
    if remat is not None and remat not in ("full", *POLICIES):
        raise ValueError(f"remat is full or one of jax.checkpoint_policies ({', '.join(POLICIES)}), not {remat!r}")
    return computed


def _check_input(network: Network, inputs: Array) -> None:
    spec = network.spec
    if spec.vocab is not None and (inputs.ndim != 2 or not jnp.issubdtype(inputs.dtype, jnp.integer)):
        raise ValueError(f"the input is a (B, T) array of ids, this one has {inputs.dtype} {inputs.shape}")
    if spec.vocab is None:
        _check_vectors(network, inputs)
    if spec.positions == "learned" and inputs.shape[1] > spec.context:
        raise ValueError(
            f"the positions reach {spec.context} tokens, the input has {inputs.shape[1]}; build with a larger context"
        )


def _check_vectors(network: Network, inputs: Array) -> None:
    spec = network.spec
    width = spec.features or spec.width
    wanted = f"(..., {width})" if network.is_token_wise else f"(B, T, {width})"
    fits = inputs.ndim >= 1 if network.is_token_wise else inputs.ndim == 3
    if not fits or inputs.shape[-1] != width:
        raise ValueError(f"the input has the shape {wanted}, this one has {inputs.shape}")
    if not jnp.issubdtype(inputs.dtype, jnp.floating):
        raise ValueError(
            f"the input is an array of floating-point vectors, this one has {inputs.dtype}; cast it, or give the spec "
            "a vocab if these are ids"
        )


def _computed_type(params: Mapping[str, Any], inputs: Array, spec: Spec, dtype: Any) -> Any:
    types: dict[Any, Path] = {}
    for path, array in flat(params).items():
        if jnp.issubdtype(array.dtype, jnp.floating):
            types.setdefault(jnp.dtype(array.dtype), path)
    if len(types) > 1:
        said = " and ".join(f"{dtype} ({'/'.join(path)})" for dtype, path in list(types.items())[:2])
        raise ValueError(f"the parameters have several types, {said}; cast them all to one")
    if dtype is not None:
        return dtype
    own = next(iter(types), None)
    if spec.embeds:
        return own
    if own is not None and inputs.dtype != own:
        raise ValueError(
            f"the input is {inputs.dtype} and the parameters are {own}; cast one of them, or say which to compute in "
            f"with dtype="
        )
    return inputs.dtype


def _is_of_module(network: Network, path: Path) -> bool:
    """Whether a path lies in the parameters of a sublayer that came as a module."""
    if network.encoder is not None and path[:1] == ("encoder",):
        return _is_of_module(network.encoder, path[1:])
    for group in network.groups:
        for step in group.steps if path[:1] == (group.name,) else ():
            for call in step.sublayers:
                own = (group.name, *group.path(step, call.index))
                if step.kind(call) in network.given and path[: len(own)] == own:
                    return True
    return False


def _other_formula(spec: Spec, given: Mapping[Path, Any]) -> str | None:
    """The first placement of the catalogue whose parameters these are."""
    shapes = {path: tuple(array.shape) for path, array in given.items()}
    for entry in entries():
        try:
            other = network(replace(spec, placement=entry.placement, init="normal"))
        except ValueError:
            continue
        if {leaf.path: leaf.shape for leaf in leaves(other)} == shapes:
            return f"{entry.placement.formula} ({entry.title})"
    return None


def _listed(paths: Iterable[Path]) -> str:
    names = sorted("/".join(path) for path in paths)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
