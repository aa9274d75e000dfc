"""Weights on disk and between frameworks, with the formula attached.

A safetensors file holds the plan's names and PyTorch's orientation, so that `normula.torch` reads what is written here
and the other way round. An Orbax checkpoint holds the tree as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from normula.flax import linen, nnx
from normula.flax.check import check_tree
from normula.flax.guarded import OrbaxCheckpoint, nested, open_checkpoint, write_orbax
from normula.flax.network import Network
from normula.flax.passes import of_module
from normula.flax.tree import Tree, to_arrays, to_tree
from normula.record.weights import WeightsError, check_formula, read_weights, write_weights
from normula.spec.stamp import about, stamp


def save(module: Any, path: str | os.PathLike[str], params: Mapping[str, Any] | None = None) -> None:
    """Write a stack's parameters: a file that ends in .safetensors, or a folder for Orbax.

    Args:
        module: an NNX stack; a Linen stack, bound, or with its parameters.
        path: the file or folder.
        params: of a Linen stack that is not bound: `variables["params"]`.
    """
    network, tree = _network(module), dict(params) if params is not None else of_module(module)[1]
    check_tree(network, tree)
    if Path(path).suffix == ".safetensors":
        _refuse_given(network)
        write_weights(path, jax.tree.map(np.asarray, to_arrays(network, tree)), about(network.spec))
        return
    write_orbax(Path(path), tree, about(network.spec))


def load(module: Any, path: str | os.PathLike[str], *, allow: bool = False) -> Tree:
    """Read a stack's parameters.

    Args:
        module: a Linen or NNX stack; an NNX stack takes them in.
        path: a file that ends in .safetensors (also one written by `normula.torch`), or a folder of Orbax.
        allow: whether weights of another formula are taken where their shapes fit.

    Returns:
        The tree, as Linen has it under `params`.

    Raises:
        WeightsError: they are of another formula; the message names both.
        TreeError: their shapes do not fit.
    """
    network = _network(module)
    where = os.fspath(path)
    if Path(path).suffix == ".safetensors":
        arrays, said = read_weights(path)
        if not allow:
            check_formula(said["formula"], stamp(network.spec), where)
        if set(arrays) != set(network.plan.parameters):
            raise WeightsError(f"{where} has other parameters than {stamp(network.spec)}, {network.spec.layers} layers")
        tree = to_tree(network, arrays)
    else:
        tree, said = _restored(path)
        if not allow:
            check_formula(said["formula"], stamp(network.spec), where)
    check_tree(network, tree)
    if isinstance(module, nnx.Stack):
        module.load(tree)
    return tree


def _restored(path: str | os.PathLike[str]) -> tuple[Tree, dict[str, Any]]:
    found = open_checkpoint(path) if Path(path).is_dir() else None
    if not isinstance(found, OrbaxCheckpoint) or found.about is None:
        raise WeightsError(f"{os.fspath(path)} is no Orbax checkpoint written by normula")
    return nested(found.arrays), found.about


def _network(module: Any) -> Network:
    if not isinstance(module, linen.Stack | nnx.Stack):
        raise ValueError(f"weights are saved and loaded for a Stack, not for {type(module).__name__}")
    return module.network


def _refuse_given(network: Network) -> None:
    if network.given:
        words = ", ".join(sorted(network.given))
        raise WeightsError(f"the modules given for {words} have names of their own; save to a folder, with Orbax")
