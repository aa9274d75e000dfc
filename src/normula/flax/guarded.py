"""JAX's side of `guard`: a model's arrays by name, and the same model with other arrays.

A model is a Linen module, bound or with its variables first among the arguments; an NNX module; an Equinox module; or
a function with its parameters among the arguments.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from normula.flax.capture import capture
from normula.flax.capture import recorded as recorded_pass
from normula.flax.capture.opened import is_array, parameters_among, path_of
from normula.record import checkpoint
from normula.record.program import Program
from normula.record.tensorfile import WeightsError
from normula.record.weights import KINDS, array_of, stored

ABOUT: Final = "normula"
"""The item of an Orbax checkpoint that says which formula it is of."""

SAMPLE: Final = 64
"""How many numbers of an array are looked at."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The tree that holds a model's weights, the arrays that are its parameters, and the model with another tree."""

    tree: Any
    is_parameter: Callable[[tuple[Any, ...]], bool]
    with_tree: Callable[[Any], tuple[Any, tuple[Any, ...]]]
    depth: int = 0

    def names(self) -> list[tuple[str, Any, bool]]:
        """Each array with its name, and whether it is a parameter."""
        found = jax.tree_util.tree_flatten_with_path(self.tree)[0]
        return [
            ("/".join(path_of(keys)[self.depth :] or path_of(keys)), one, self.is_parameter(keys))
            for keys, one in found
            if is_array(one)
        ]

    def replaced(self, given: Mapping[str, Any]) -> Any:
        """The tree with other arrays, each in its own dtype and on its own device."""

        def of(keys: tuple[Any, ...], old: Any) -> Any:
            name = "/".join(path_of(keys)[self.depth :] or path_of(keys))
            if not is_array(old) or name not in given:
                return old
            new = jnp.asarray(given[name], old.dtype)
            return jax.device_put(new, old.sharding) if isinstance(old, jax.Array) else new

        return jax.tree_util.tree_map_with_path(of, self.tree)


def weights(model: Any, args: Sequence[Any]) -> Weights:
    """Where a model's weights are.

    Raises:
        ValueError: a Linen module without its variables, or a function without parameters.
    """
    args = tuple(args)
    if isinstance(model, linen.Module):
        in_params: Callable[[tuple[Any, ...]], bool] = lambda keys: path_of(keys)[0] == "params"  # noqa: E731
        if model.scope is not None:
            module, variables = model.unbind()
            return Weights(variables, in_params, lambda tree: (module.bind(tree), args), 1)
        if args and isinstance(args[0], Mapping):
            return Weights(args[0], in_params, lambda tree: (model, (tree, *args[1:])), 1)
        raise ValueError(
            "A Linen module holds no weights. Bind it to its variables, module.bind(variables), or pass them first "
            "in example=(variables, x)"
        )
    if isinstance(model, nnx.Module):
        graph, *states = nnx.split(model, nnx.RngState, ...)
        rngs, rest = states
        names = {path for path, one in nnx.to_flat_state(nnx.state(model, nnx.Param))}
        plain = {tuple(str(part) for part in path) for path in names}
        return Weights(rest, lambda keys: path_of(keys) in plain, lambda tree: (nnx.merge(graph, rngs, tree), args))
    if jax.tree.leaves(model) not in ([model], []):
        return Weights(model, lambda _: True, lambda tree: (tree, args))
    place = parameters_among(list(args), {})
    if not isinstance(place, int):
        raise ValueError("A function of JAX holds no weights. Pass them first in example=(params, x)")
    return Weights(args[place], lambda _: True, lambda tree: (model, args[:place] + (tree,) + args[place + 1 :]))  # noqa: RUF005


def bare(model: Any) -> Any:
    """The model itself; nothing of JAX wraps one."""
    return model


@contextmanager
def eagerly() -> Iterator[None]:
    """A jaxpr is opened, compiled or not."""
    yield


def plain_name(name: str) -> str:
    """A name as it is."""
    return name


def plain_names(names: Sequence[str], own: Sequence[str]) -> dict[str, str]:
    """Names as they are."""
    return {name: name for name in names}


def tensors_of(model: Any, args: Sequence[Any] = ()) -> tuple[dict[str, Any], frozenset[str]]:
    """All arrays that are saved, by name, and which of them are no parameters."""
    found = weights(model, args).names()
    return {name: one for name, one, _ in found}, frozenset(name for name, _, learned in found if not learned)


def tied(tensors: Mapping[str, Any]) -> dict[str, str]:
    """An array is a value; none is the same as another."""
    return {}


def sample(tensor: Any) -> list[float]:
    """Some numbers of an array, at places that depend on its size alone."""
    if isinstance(tensor, jax.ShapeDtypeStruct) or not tensor.size or jnp.iscomplexobj(tensor):
        return []
    places = np.arange(0, tensor.size, max(1, tensor.size // SAMPLE))[:SAMPLE]
    return [float(one) for one in np.asarray(tensor.reshape(-1)[places]).astype(np.float64)]


def is_empty(tensor: Any) -> bool:
    """Whether an array has a shape only."""
    return isinstance(tensor, jax.ShapeDtypeStruct)


def dtype_of(tensor: Any) -> str:
    """An array's dtype in the format's words."""
    return KINDS.get(np.dtype(tensor.dtype).name, "?")


def shape_of(tensor: Any) -> tuple[int, ...]:
    """An array's shape."""
    return tuple(tensor.shape)


@contextmanager
def holding(model: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Inside, a model with other arrays; the one that was given is not touched."""
    found = weights(model, args)
    yield found.with_tree(found.replaced(given))


def put(model: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """The weights as a model takes them: variables, parameters, or the module; an NNX module takes them in as well."""
    found = weights(model, args)
    tree = found.replaced(given)
    if isinstance(model, nnx.Module):
        nnx.update(model, tree)
        return model
    return tree


def recorded(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> tuple[Program, dict[int, np.ndarray]]:
    """One pass with the weights that the model has."""
    return recorded_pass(model, args, kwargs, keep)


def seen(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """What a pass computes: a jaxpr is traced without values, where they decide nothing."""
    return capture(model, args, kwargs)


def unsaved(model: Any) -> dict[str, Any]:
    """Every array of a model is in its tree."""
    return {}


def precision() -> str | None:
    """The narrower dtype that products are taken in: matrix units of GPUs and TPUs round, unless told otherwise."""
    narrow = getattr(jax.config, "jax_default_matmul_precision", None) not in ("highest", "float32")
    return {"gpu": "TF32", "tpu": "BF16"}.get(jax.default_backend()) if narrow else None


def as_array(value: Any) -> np.ndarray | None:
    """An array of the example; bfloat16 as float32. None for what is no array."""
    if not isinstance(value, jax.Array | np.ndarray) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return None
    return np.asarray(value, np.float32) if value.dtype == jnp.bfloat16 else np.asarray(value)


def as_input(array: np.ndarray, model: Any) -> Any:
    """An array of an example."""
    return jnp.asarray(array)


def given_besides(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments that are no weights."""
    place = _place(model, args)
    return [one for number, one in enumerate(args) if number != place], kwargs


def with_weights(model: Any, args: tuple[Any, ...], given: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with the weights that were given among them.

    Raises:
        ValueError: the model needs them there, and none were given.
    """
    place = _place(model, given)
    if place is None:
        if isinstance(model, linen.Module) and model.scope is None:
            weights(model, given)
        return args
    return (*args[:place], given[place], *args[place:])


def example_of(model: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a stack that was built here; those of others cannot be guessed.

    Raises:
        ValueError: as said.
    """
    from normula.data import random_input
    from normula.flax.linen import Stack as LinenStack
    from normula.flax.nnx import Stack as NnxStack

    if isinstance(model, LinenStack | NnxStack) and model.spec.encoder is None:
        x = random_input(model.spec, 0, 2, 5)
        return (jnp.asarray(x, int if model.spec.vocab is not None else float),), {}
    raise ValueError("Example inputs of a model of JAX are not guessed. Pass example=(x,)")


@dataclass(frozen=True, slots=True)
class OrbaxCheckpoint:
    """A folder of Orbax: its arrays by name, and what it says of itself."""

    where: str
    about: dict[str, Any] | None
    arrays: dict[str, Any]


def open_checkpoint(path: str | os.PathLike[str]) -> Any:
    """A safetensors checkpoint, or a folder of Orbax that was written here.

    Raises:
        FileNotFoundError: there is nothing there.
        WeightsError: it is neither.
    """
    folder = Path(path).absolute()
    aside = _aside(folder)
    if not folder.exists() and aside.exists():
        aside.rename(folder)  # a save was killed between its two renames; the old one is whole
    if not (folder / ABOUT).is_dir():
        return checkpoint.open_checkpoint(path)
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        items = {"params": ocp.args.StandardRestore(), ABOUT: ocp.args.JsonRestore()}
        try:
            found = checkpointer.restore(folder, ocp.args.Composite(**items))
        except Exception as error:  # Orbax's errors about files are many
            first = (str(error).strip().splitlines() or [""])[0]
            raise WeightsError(f"{os.fspath(path)} is damaged: Orbax cannot read it ({first[:160]})") from None
    return OrbaxCheckpoint(os.fspath(path), found[ABOUT], _flat(found["params"]))


def tensors_in(found: Any) -> dict[str, Any]:
    """The arrays of a checkpoint."""
    if isinstance(found, OrbaxCheckpoint):
        return found.arrays
    return {name: array_of(entry, found.bytes_of(name)) for name, (_, entry) in found.entries.items()}


def write(
    model: Any,
    args: Sequence[Any],
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    *,
    dtype: str | None,
    shard_bytes: int | None,
    tied: Mapping[str, str],
) -> None:
    """Write a model's arrays: a file that ends in .safetensors, or a folder for Orbax."""
    tensors, _ = tensors_of(model, args)
    if dtype is not None:
        tensors = {name: one.astype(dtype) if _is_real(one) else one for name, one in tensors.items()}
    if Path(path).suffix == ".safetensors":
        if shard_bytes is not None:
            raise ValueError(f"{os.fspath(path)} is one file, and shards are several")
        checkpoint.write_checkpoint(path, {name: stored(one) for name, one in tensors.items()}, about)
        return
    if shard_bytes is not None:
        raise ValueError("Orbax cuts its files itself. Leave shard_bytes out, or name a file that ends in .safetensors")
    write_orbax(Path(path), nested(tensors), about)


def write_orbax(path: Path, tree: Any, about: Mapping[str, Any]) -> None:
    """Write a folder of Orbax beside the one that is there, and put it in its place when it is whole."""
    import orbax.checkpoint as ocp

    folder = path.absolute()
    new, old = folder.with_name(f".{folder.name}.new"), _aside(folder)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        items = {"params": ocp.args.StandardSave(tree), ABOUT: ocp.args.JsonSave(dict(about))}
        checkpointer.save(new, ocp.args.Composite(**items), force=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _aside(folder: Path) -> Path:
    """Where the old folder waits until the new one has its name."""
    return folder.with_name(f".{folder.name}.old")


def _place(model: Any, args: Sequence[Any]) -> int | None:
    """The argument that holds the weights."""
    if isinstance(model, linen.Module):
        return 0 if model.scope is None and args and isinstance(args[0], Mapping) else None
    if isinstance(model, nnx.Module) or jax.tree.leaves(model) not in ([model], []):
        return None
    place = parameters_among(list(args), {})
    return place if isinstance(place, int) else None


def _is_real(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of dictionaries from names with slashes."""
    tree: dict[str, Any] = {}
    for name, one in flat.items():
        *folders, last = name.split("/")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = one
    return tree


def _flat(tree: Any) -> dict[str, Any]:
    """Names with slashes from a tree."""
    return {"/".join(path_of(keys)): one for keys, one in jax.tree_util.tree_flatten_with_path(tree)[0]}
