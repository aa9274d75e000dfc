"""JAX's side of reading: the jaxpr of one forward pass, recorded as a Program, with all loops and calls written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from normula.flax.capture.drawn import drawn
from normula.flax.capture.opened import Leaf, Opened, opened
from normula.flax.capture.recorder import Held, Recorder, shaped
from normula.flax.capture.walk import UndecidedError, Walk
from normula.record.program import Program

__all__ = ["capture", "computes", "not_finite", "recorded", "run", "values"]

ValueOf: TypeAlias = Callable[[Leaf, int], Any]

SEED: Final = 20_240_229
"""Of the parameters that are drawn, so that two passes compute the same."""


def capture(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Program:
    """What a forward pass of the model computes.

    Args:
        model: a Linen module with variables, an NNX module, an Equinox module or any callable that JAX can flatten,
            or a function of (parameters, inputs) or of inputs alone; it is not changed.
        args, kwargs: of its call. Arrays may be `jax.ShapeDtypeStruct`: then nothing is computed.

    Raises:
        Exception: whatever the call raises when it is traced.
    """
    whole = opened(model, args, kwargs or {})
    try:
        recorder, outputs = _run(whole, frozenset(), real=False)
    except UndecidedError as error:
        if not whole.real:
            raise ValueError(f"{error} Pass arrays with values, not only their shapes.") from None
        recorder, outputs = _run(whole, frozenset(), real=True)
    nodes, calls = recorder.called()
    return Program(
        nodes=nodes, outputs=tuple(outputs), calls=calls, uncalled=_uncalled(whole, recorder), real=whole.real
    )


def values(
    program: Program, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> dict[int, np.ndarray] | None:
    """The values of some nodes of `capture`'s Program, computed once more; None where the pass computes others.

    Raises:
        ValueError: some array has a shape only, so nothing has a value.
    """
    if not program.real:
        raise ValueError("Arrays that have a shape only give no values. Read the model with real ones, or a twin.")
    recorder, _ = _run(opened(model, args, kwargs), keep, real=True)
    return recorder.kept if computes(recorder, program) else None


def not_finite(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The parameters and buffers that hold a number that is not finite."""
    whole = opened(model, args, kwargs or {})
    held = [one for one in whole.leaves if one.kind != "input"] if whole.real else []
    floats = (one for one in held if jnp.issubdtype(one.array.dtype, np.inexact))
    return tuple("/".join(one.path) for one in floats if not bool(jnp.isfinite(one.array).all()))


def recorded(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> tuple[Program, dict[int, np.ndarray]]:
    """One pass with the parameters as they are: what it computes, and the values of some of its nodes and its outputs.

    Raises:
        Exception: whatever the call raises.
    """
    whole = opened(model, args, kwargs)
    recorder = Recorder(keep)
    found = run(whole, whole.traced()[0], recorder, (lambda leaf, _: leaf.array) if whole.real else None)
    nodes, calls = recorder.called()
    program = Program(
        nodes=nodes,
        outputs=tuple(dict.fromkeys(one.node for one in found)),
        calls=calls,
        uncalled=_uncalled(whole, recorder),
        real=whole.real,
    )
    came_out = {one.node: np.asarray(one.value) for one in found if one.value is not None}
    return program, {**recorder.kept, **came_out}


def computes(recorder: Recorder, program: Program) -> bool:
    """Whether a pass computed what a program says."""
    return len(recorder.nodes) == len(program.nodes) and all(
        one.kind == other.kind and one.inputs == other.inputs and one.shape == other.shape
        for one, other in zip(recorder.nodes, program.nodes, strict=True)
    )


def _run(whole: Opened, keep: frozenset[int], *, real: bool) -> tuple[Recorder, list[int]]:
    """A recorded pass, and the nodes that it returned."""
    recorder, (jaxpr, _) = Recorder(keep), whole.traced()
    outputs = run(whole, jaxpr, recorder, _generic if real else None)
    return recorder, list(dict.fromkeys(one.node for one in outputs))


def run(whole: Opened, jaxpr: ClosedJaxpr, recorder: Recorder, value_of: ValueOf | None) -> list[Held]:
    """What a pass returned; `value_of` gives each array that goes in, and its place, a value: without it none has one.

    Arrays that a function closes over are places below 0.
    """
    walk = Walk(recorder, real=value_of is not None, has_scopes=whole.has_scopes)
    arguments = [_leaf(recorder, leaf, place, value_of) for place, leaf in enumerate(whole.leaves)]
    for node, place in _stacks(whole).items():
        recorder.stacks[arguments[node].node] = place
    constants = []
    for place, one in enumerate(jaxpr.consts):
        if whole.closes_over_weights and np.ndim(one) and jnp.issubdtype(np.asarray(one).dtype, np.floating):
            leaf = Leaf("parameter", (f"constant{place}",), one)
            constants.append(_leaf(recorder, leaf, -1 - place, value_of))
        else:
            constants.append(walk.written(one))
    return walk.run(jaxpr.jaxpr, constants, arguments)


def _generic(leaf: Leaf, place: int) -> Any:
    """A parameter that is not generic is drawn in a copy."""
    return drawn(leaf.array, SEED + abs(place)) if leaf.kind == "parameter" else leaf.array


def _leaf(recorder: Recorder, leaf: Leaf, place: int, value_of: ValueOf | None) -> Held:
    """The node of an array."""
    aval = shaped(np.shape(leaf.array), leaf.array.dtype)
    value = None if value_of is None else value_of(leaf, place)
    name = "/".join(leaf.path)
    if leaf.kind == "input":
        node = recorder.emit("input", (), aval, value, name=name)
    else:
        node = recorder.emit(leaf.kind, (), aval, value, leaf.path[:-1], names=(name,))
    return Held(node, aval, None if value is None else recorder.passed(node, value))


def _stacks(whole: Opened) -> dict[int, int]:
    """For each parameter that is stacked over layers, how deep in the tree the outermost folder is that is all so."""
    folders: dict[tuple[str, ...], list[int]] = {}
    for place, leaf in enumerate(whole.leaves):
        if leaf.kind == "parameter":
            for depth in range(1, len(leaf.path)):
                folders.setdefault(leaf.path[:depth], []).append(place)
    found: dict[int, int] = {}
    for path in sorted(folders, key=len):
        lengths = {np.shape(whole.leaves[place].array)[:1] for place in folders[path]}
        if len(lengths) == 1 and lengths != {()} and len(folders[path]) > 1:
            for place in folders[path]:
                found.setdefault(place, len(path))
    return found


def _uncalled(whole: Opened, recorder: Recorder) -> tuple[str, ...]:
    """Folders of parameters that hold nothing but vectors, as norms do, none of which was read."""
    inputs = [recorder.nodes[one] for one in {one for node in recorder.nodes for one in node.inputs}]
    read = {name.split("[")[0] for one in inputs for name in one.attrs.get("names", ())}
    folders: dict[str, list[Leaf]] = {}
    for leaf in whole.leaves:
        if leaf.kind == "parameter":
            folders.setdefault("/".join(leaf.path[:-1]), []).append(leaf)
    return tuple(
        folder
        for folder, leaves in folders.items()
        if folder and all(np.ndim(leaf.array) == 1 and "/".join(leaf.path) not in read for leaf in leaves)
    )
