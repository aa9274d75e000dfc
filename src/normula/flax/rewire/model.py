"""Here lives Rewired: a model of JAX, of any kind, whose streams follow other formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from normula.flax.capture import run
from normula.flax.capture.opened import Leaf, Opened, opened, parameters_among
from normula.flax.capture.recorder import Recorder, shaped
from normula.flax.guarded import nested
from normula.flax.rewire.passing import Looking, Stepping, is_same
from normula.record.nodes import NodeOperation
from normula.record.rewiring import NewNorm
from normula.spec.kinds import NORM_KINDS

Arrays = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class How:
    """A model without its weights, and what its pass does otherwise.

    Attributes:
        model: as it was given.
        place: of the argument that held its weights; None where it holds them itself.
        weights: that argument, with shapes in the place of arrays.
        operation: what is done.
        gone: the weights that its own code still asks for and nothing reads, by name, with their shapes.
        plan: the `Plan`, once the rewiring is proved.
    """

    model: Any
    place: int | str | None
    weights: Any
    operation: NodeOperation
    gone: Mapping[str, Any]
    plan: Any = None

    def opened(self, arrays: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Opened:
        """The model with these weights, and arguments without them."""
        args, kwargs = list(args), dict(kwargs)
        if isinstance(self.place, int):
            args.insert(self.place, self.weights)
        elif self.place is not None:
            kwargs[self.place] = self.weights
        whole = opened(self.model, args, kwargs)
        leaves = (one if one.kind == "input" else replace(one, array=self._array(one, arrays)) for one in whole.leaves)
        return replace(whole, leaves=tuple(leaves))

    def _array(self, leaf: Leaf, arrays: Arrays) -> Any:
        name = "/".join(leaf.path)
        if name in arrays:
            return arrays[name]
        if name in self.gone:
            return jnp.zeros(self.gone[name].shape, self.gone[name].dtype)
        raise ValueError(f"This model has a weight {name}, and it is not among those that were given.")

    def looked_at(self, whole: Opened, jaxpr: Any, arrays: Arrays) -> dict[int, Any]:
        """The vectors of the model's norms: what is made of weights alone is computed, and nothing else."""
        wanted = frozenset(node for norm in self.operation.own.values() for node in norm.vectors.values())
        looking = Looking(wanted)

        def weight(leaf: Leaf, _: int) -> Any:
            return None if leaf.kind == "input" else arrays.get("/".join(leaf.path), leaf.array)

        run(whole, jaxpr, looking, weight)
        self._check(looking)
        return looking.found

    def results(self, arrays: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a pass returns."""
        whole = self.opened(arrays, args, kwargs)
        jaxpr, tree = whole.traced()
        stepping = Stepping(self.operation, self.looked_at(whole, jaxpr, arrays), arrays)
        held = run(whole, jaxpr, stepping, lambda leaf, _: arrays.get("/".join(leaf.path), leaf.array))
        self._check(stepping)
        return jax.tree.unflatten(tree, [one.value for one in held])

    def _check(self, recorder: Recorder) -> None:
        if not is_same(recorder, self.operation):
            raise RuntimeError(
                f"{type(self.model).__name__} was rewired by one pass, and this one takes another path. Rewire the "
                "model with an example that takes the path that is wanted."
            )


@jax.tree_util.register_pytree_with_keys_class
class Rewired:
    """A model whose streams follow other formulas: called as the old one, without an argument for its weights.

    It is a pytree of its weights: `jax.jit`, `jax.grad` and optimisers take it as it is.

    Attributes:
        parameters: its weights by name, such as `block_0/ln1/scale`.
    """

    def __init__(self, how: How, parameters: Arrays) -> None:
        self._how, self.parameters = how, dict(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._how.results(self.parameters, args, kwargs)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the old model as this one takes them."""
        return without(self._how, args, kwargs)

    def apply(self, parameters: Arrays, *args: Any, **kwargs: Any) -> Any:
        """The same with other weights."""
        return self._how.results(parameters, args, kwargs)

    @property
    def rewiring(self) -> Any:
        """The `Plan` that it was rewired by."""
        return self._how.plan

    @rewiring.setter
    def rewiring(self, plan: Any) -> None:
        self._how.plan = plan

    def __repr__(self) -> str:
        to = getattr(self.rewiring, "to", "another formula")
        return f"Rewired({type(self._how.model).__name__} with {to}, {len(self.parameters)} arrays)"

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        tree = nested(self.parameters)
        keys = tuple(tree)
        return [(jax.tree_util.DictKey(key), tree[key]) for key in keys], (self._how, keys)

    @classmethod
    def tree_unflatten(cls, said: Any, children: Sequence[Any]) -> Rewired:
        how, keys = said
        return cls(how, _flat(dict(zip(keys, children, strict=True))))


def operated(model: Any, operation: NodeOperation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Rewired:
    """The rewired model, with the model's weights and new ones where they start."""
    arrays = held(model, args, kwargs)
    gone = {name: shaped(arrays[name].shape, arrays[name].dtype) for name in removed(operation) if name in arrays}
    how = How(model, *_weights(model, args, kwargs), operation, gone)
    kept = {name: array for name, array in arrays.items() if name not in gone}
    return Rewired(how, {**kept, **_added(how, arrays, args, kwargs)})


def held(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of a model by name."""
    whole = opened(model, args, kwargs)
    found = {"/".join(leaf.path): jnp.asarray(leaf.array) for leaf in whole.leaves if leaf.kind != "input"}
    if whole.closes_over_weights:
        floats = ((place, one) for place, one in enumerate(whole.traced()[0].consts) if np.ndim(one) and _is_float(one))
        found |= {f"constant{place}": jnp.asarray(one) for place, one in floats}
    return found


def counted(
    model: Any, operation: NodeOperation, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """The parameters that are added and removed, each with its number of elements."""
    whole = opened(model, args, kwargs)
    sizes = {"/".join(leaf.path): int(np.prod(leaf.array.shape)) for leaf in whole.leaves if leaf.kind != "input"}
    added = {
        f"{name_of(norm.path)}/{part}": int(np.prod(shape))
        for norm in operation.norms
        for part, shape, _ in parts_of(norm)
    }
    added |= {name_of(gain.path): max(gain.width, 1) for gain in operation.gains}
    return added, {name: sizes[name] for name in removed(operation) if name in sizes}


def removed(operation: NodeOperation) -> tuple[str, ...]:
    """The parameters that nothing reads any more."""
    gone = dict.fromkeys(name for path in operation.removed for name in operation.own[path].names)
    kept = {name for path, norm in operation.own.items() if path not in operation.removed for name in norm.names}
    return tuple(name for name in gone if name not in kept)


def without(how: How, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments without the one that holds the weights."""
    given = tuple(one for place, one in enumerate(args) if place != how.place)
    return given, {name: one for name, one in kwargs.items() if name != how.place}


def name_of(path: str) -> str:
    """The name of an array at a path of modules."""
    return path.replace(".", "/")


def parts_of(norm: NewNorm) -> list[tuple[str, tuple[int, ...], float]]:
    """The arrays of a new norm: their names, shapes, and what they start at."""
    kind = NORM_KINDS[norm.kind]
    starts = {"weight": norm.start} if norm.start != 1.0 else {}
    return [
        ("scale" if one.name == "weight" else one.name, one.shape(norm.width), starts.get(one.name, one.start))
        for one in kind.parameters
    ]


def _weights(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int | str | None, Any]:
    """The place of the argument that holds the weights, and its shapes."""
    place: int | str | None = None
    if isinstance(model, linen.Module):
        place = 0 if model.scope is None else None
    elif jax.tree.leaves(model) in ([model], []):
        place = parameters_among(args, kwargs)
    if place is None:
        return None, None
    weights = args[place] if isinstance(place, int) else kwargs[place]
    return place, jax.tree.map(lambda one: shaped(np.shape(one), one.dtype) if hasattr(one, "dtype") else one, weights)


def _added(how: How, arrays: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """New arrays where they start; copies have the values of what they are copies of."""
    operation = how.operation
    anchor = next((one for one in arrays.values() if _is_float(one)), jnp.zeros(()))
    found = {
        f"{name_of(norm.path)}/{part}": jnp.full(shape, start, anchor.dtype)
        for norm in operation.norms
        for part, shape, start in parts_of(norm)
    }
    found |= copies(how, arrays, args, kwargs)
    for gain in operation.gains:
        shape = (gain.width, *(1 for _ in range(-1 - gain.axis))) if gain.width else ()
        found[name_of(gain.path)] = jnp.full(shape, gain.start, anchor.dtype)
    return found


def copies(how: How, arrays: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of the norms that are copies of others, where the model has these weights."""
    copied = [norm for norm in how.operation.norms if norm.copied]
    if not copied:
        return {}
    whole = how.opened(arrays, *without(how, args, kwargs))
    vectors = how.looked_at(whole, whole.traced()[0], arrays)
    found = {}
    for norm in copied:
        like = how.operation.own[norm.like].vectors
        for part, shape, start in parts_of(norm):
            node = like.get("gain" if part == "scale" else part)
            dtype = next(iter(arrays.values())).dtype
            found[f"{name_of(norm.path)}/{part}"] = (
                jnp.full(shape, start, dtype) if node is None else jnp.reshape(vectors[node], shape)
            )
    return found


def _is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(jnp.asarray(array).dtype, np.floating))


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in tree.items():
        found |= _flat(one, f"{above}{key}/") if isinstance(one, dict) else {f"{above}{key}": one}
    return found
