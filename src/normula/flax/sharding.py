"""Where the parameters of a stack lie on a mesh of devices: from the names of their axes, by rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from flax.linen.spmd import logical_to_mesh_axes
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from normula.flax import core
from normula.flax.network import Network
from normula.flax.tree import Tree, leaves, put

Rules = Sequence[tuple[str, str | tuple[str, ...] | None]]


def shardings(model: Any, mesh: Mesh, rules: Rules) -> Tree:
    """A sharding for every parameter.

        >>> from normula.flax import linen
        >>> from normula.spec import Spec
        >>> stack = linen.Stack(Spec(placement="pre", layers=2, width=8, heads=2))
        >>> mesh = jax.make_mesh((1, 1), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        >>> found = shardings(stack, mesh, (("heads", "tensor"), ("mlp", "tensor")))
        >>> found["layers"]["mlp"]["f"]["up"]["kernel"].spec == PartitionSpec(None, None, "tensor")
        True

    Args:
        model: a stack of Linen or NNX, or a network.
        mesh: of the devices.
        rules: pairs of an axis of the parameters (layers, embed, heads, mlp, vocab, experts) and one of the mesh; what
            no rule names is whole on every device. An axis of the mesh serves an array once, by the first rule.

    Returns:
        A tree like `params`. Parameters of sublayers of your own are whole on every device.

    Raises:
        ValueError: an axis that the devices do not divide; a rule for an axis that the mesh does not have; a mesh whose
            axes are not `AxisType.Auto`.
    """
    net: Network = model if isinstance(model, Network) else model.network
    if any(kind is not AxisType.Auto for kind in mesh.axis_types):
        raise ValueError(
            "a stack leaves it to the compiler where its values lie, and this mesh asks for every one to be said; make "
            f"it with axis_types=(jax.sharding.AxisType.Auto,) * {len(mesh.shape)}"
        )
    for name, target in rules:
        for axis in (target,) if isinstance(target, str) else target or ():
            if axis not in mesh.shape:
                raise ValueError(f"a rule puts {name} on {axis!r}, and the mesh has {', '.join(mesh.shape)}")
    start = jax.eval_shape(partial(core.init, net), key=jax.random.key(0))
    whole = PartitionSpec()  # type: ignore[no-untyped-call]
    tree: Tree = jax.tree.map(lambda array: NamedSharding(mesh, whole), start)
    for leaf in leaves(net):
        found = NamedSharding(mesh, logical_to_mesh_axes(leaf.axes, rules) or whole)
        try:
            found.shard_shape(leaf.shape)
        except ValueError:
            raise ValueError(
                f"{'/'.join(leaf.path)} has the shape {leaf.shape} and axes {leaf.axes}, which {found.spec} does not "
                f"divide on the mesh {dict(mesh.shape)}; choose sizes that it divides, or leave a rule out"
            ) from None
        put(tree, leaf.path, found)
    return tree
