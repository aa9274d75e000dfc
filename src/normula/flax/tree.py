"""The names of parameters in Flax, and the way between them and the plan's.

A plan has `layers.3.attn.norm_in.weight` for each layer; the tree has `layers/attn/norm/scale` once for all layers of a
group, stacked along the first axis. Matrices are `kernel` and (in, out), where the plan has `weight` and (out, in).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from normula.flax.network import Network, inside
from normula.formula.words import NORMS
from normula.spec import Parameter, Step

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array of the tree.

    Attributes:
        path: where it is.
        names: the plan's parameters in it: one, or one for each layer of a group.
        parameter: what the first of them is.
        stacked: whether the layer is its first axis.
        is_matrix: whether its last two axes are those of the plan the other way round.
    """

    path: Path
    names: tuple[str, ...]
    parameter: Parameter
    stacked: bool
    is_matrix: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array in the tree."""
        own = self.parameter.shape
        own = (*own[:-2], own[-1], own[-2]) if self.is_matrix else own
        return (len(self.names), *own) if self.stacked else own

    @property
    def axes(self) -> tuple[str | None, ...]:
        """A name for each axis, for sharding: layers, experts, vocab, heads, mlp, embed."""
        own = _axes(self.path, self.parameter, len(self.parameter.shape))
        return ("layers", *own) if self.stacked else own


def leaves(network: Network) -> Iterator[Leaf]:
    """Every array of a network's tree, those of given sublayers apart."""
    if network.encoder is not None:
        for leaf in leaves(network.encoder):
            names = tuple(f"encoder.{name}" for name in leaf.names)
            yield Leaf(("encoder", *leaf.path), names, leaf.parameter, leaf.stacked, leaf.is_matrix)
    parameters = {name: one for name, one in network.plan.parameters.items() if not name.startswith("encoder.")}
    layers = {l: group for group in network.groups for l in range(group.first, group.first + group.count)}
    folders = _renamed(network)
    for name, parameter in parameters.items():
        *folder, last = _moved(name, folders).split(".")
        path = (*folder, _leaf(last, parameter))
        is_matrix = path[-1] == "kernel"
        if path[0] != "layers":
            yield Leaf(path, (name,), parameter, False, is_matrix)
            continue
        group = layers[int(path[1])]
        if int(path[1]) == group.first:
            rest = name.split(".", 2)[2]
            names = tuple(f"layers.{group.first + i}.{rest}" for i in range(group.count))
            yield Leaf((group.name, *path[2:]), names, parameter, True, is_matrix)


def to_tree(network: Network, arrays: Mapping[str, Any], dtype: Any = None) -> Tree:
    """The tree of a network from the plan's arrays by name, in their own type or in another."""
    tree: Tree = {}
    for leaf in leaves(network):
        first = arrays[leaf.names[0]]
        xp = jnp if isinstance(first, Array) else np  # what is no JAX array is put together before it becomes one
        own = xp.stack([arrays[name] for name in leaf.names]) if leaf.stacked else xp.asarray(first)
        put(tree, leaf.path, jnp.asarray(xp.swapaxes(own, -1, -2) if leaf.is_matrix else own, dtype))
    return tree


def to_arrays(network: Network, tree: Tree) -> dict[str, Array]:
    """The plan's arrays by name from the tree of a network."""
    found: dict[str, Array] = {}
    for leaf in leaves(network):
        array = at(tree, leaf.path)
        array = jnp.swapaxes(array, -1, -2) if leaf.is_matrix else array
        found |= dict(zip(leaf.names, array if leaf.stacked else [array], strict=True))
    return {name: found[name] for name in network.plan.parameters}


def at(tree: Mapping[str, Any], path: Path) -> Any:
    """What is at a path; an empty tree where nothing is."""
    found: Any = tree
    for part in path:
        found = found.get(part, {})
    return found


def put(tree: Tree, path: Path, value: Any) -> None:
    """Put a value at a path."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def flat(tree: Mapping[str, Any]) -> dict[Path, Any]:
    """Leaves by path."""
    found = {}
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        found[tuple(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)] = value
    return found


def stacked(trees: list[Any]) -> Any:
    """Trees of the same form as one, with their number as the first axis."""
    return jax.tree.map(lambda *arrays: jnp.stack([jnp.asarray(array) for array in arrays]), *trees)


def _renamed(network: Network) -> dict[str, str]:
    """The plan's path of each norm, and its path in the tree."""
    steps: list[Step] = [network.plan.embed, network.plan.final, *(step for _, step in network.plan.starts)]
    steps += [step for layer in network.plan.layers for step in layer]
    return {
        step.path(call.index): ".".join(inside(step, call.index))
        for step in steps
        for call in step.formula.calls
        if call.word in NORMS
    }


def _moved(name: str, folders: Mapping[str, str]) -> str:
    folder, _, last = name.rpartition(".")
    return f"{folders.get(folder, folder)}.{last}" if folder else last


def _leaf(last: str, parameter: Parameter) -> str:
    """Flax's name of an array."""
    if last != "weight":
        return last
    match parameter.role.kind:
        case "token_embedding" | "position_embedding":
            return "embedding"
        case "matrix" | "writer" | "head" | "feature_embedding":
            return "kernel"
    return "scale"


_SIDES: Mapping[str, tuple[str | None, str | None]] = {
    "q": ("embed", "heads"),
    "k": ("embed", "heads"),
    "v": ("embed", "heads"),
    "o": ("heads", "embed"),
    "up": ("embed", "mlp"),
    "gate": ("embed", "mlp"),
    "down": ("mlp", "embed"),
    "router": ("embed", None),
    "head": ("embed", "vocab"),
    "features": (None, "embed"),
}
"""What goes into each matrix, and what comes out."""


def _axes(path: Path, parameter: Parameter, rank: int) -> tuple[str | None, ...]:
    owner = path[-2] if len(path) > 1 else ""
    match path[-1]:
        case "kernel" if owner in _SIDES:
            return (*("experts",) * (rank - 2), *_SIDES[owner])
        case "bias" if owner in _SIDES:
            return (_SIDES[owner][1],)
        case "embedding" if owner == "tokens":
            return ("vocab", "embed")
        case "embedding" if owner == "positions":
            return (None, "embed")
        case "scale" | "bias" if rank == 1:
            return ({"norm_mid": "mlp", "norm_heads": "heads"}.get(owner, None if owner in _OVER_HEADS else "embed"),)
    return (None,) * rank


_OVER_HEADS = ("norm_q", "norm_k", "norm_v")
"""Norms over a projection or over each head: whole on every device."""
