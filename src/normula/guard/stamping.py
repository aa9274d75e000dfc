"""From a model to its stamp: its formula by reading it, and what it does with a fixed input."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from normula.framework import PACKAGES, room
from normula.guard.inputs import drawn, made, written
from normula.guard.rounding import roundings
from normula.read import PASSES, framework_to_read
from normula.read.reading import reading_and_ends
from normula.record.base import environment
from normula.record.program import Program
from normula.record.reading import UNKNOWN, Reading
from normula.record.stamp import Fingerprint, Output, Site, Stamp, StampedNorm, StampedStage

SUMS: Final = 4
"""Sums under random signs of one output: two functions that agree in all of them are one to 1 in 10,000."""

MOST_OUTPUTS: Final = 8

NARROWNESS: Final = ("F64", "F32", "TF32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
"""Dtypes of real numbers from the widest."""

Example = Sequence[Any] | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Looked:
    """A model that was read.

    Attributes:
        reading: what was read.
        ends: for each layer the node of the stream after it.
        rounded: for each gain, whether what it multiplies is rounded before or after it.
        shapes: digest of a pass that computed shapes only; empty where the forward needs values.
    """

    reading: Reading
    ends: Mapping[str, int]
    rounded: Mapping[str, str]
    shapes: str = ""


def guarded(model: Any, given: Any = ()) -> Any:
    """The room's side of guarding for a model's framework.

    Raises:
        ValueError: it is of none.
    """
    return room(framework_to_read(model, given)).guarded


def arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a forward: a tuple of them, or a dict by name."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if example is not None and not isinstance(example, list | tuple):
        raise ValueError(
            f"example must be a tuple of forward's arguments, or a dict by their names, not {type(example).__name__}. "
            "Pass example=(x,)"
        )
    return tuple(example or ()), {}


def stamp(model: Any, example: Example = None) -> Stamp:
    """What a checkpoint of a model should know: its formula, its norms, and what it does with a fixed input.

    The model's own weights are looked at; it is as it was afterwards.

    Args:
        model: as `normula.read` takes it, also compiled or wrapped for distributed training.
        example: a tuple or a dict of its forward's arguments; None where they can be guessed.

    Raises:
        ValueError: no room can read such a model.
        Exception: whatever the forward raises.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> stamp(layer, (torch.randn(2, 3, 8),)).formula
        '1 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))'
    """
    args, kwargs = arguments(example)
    there = guarded(model, (args, kwargs))
    if not args and not kwargs:
        args, kwargs = there.example_of(model)
    given, by_name = there.given_besides(model, args, kwargs)
    inputs = written(given, by_name, there.as_array)
    if inputs is not None:
        args, kwargs = inputs_of(inputs, model, there, args)
    looked = look(model, args, kwargs)
    if any(one.proof == "failed" for one in looked.reading.stages):
        broken = room(framework_to_read(model, (args, kwargs))).not_finite(there.bare(model), args, kwargs)
        if broken:
            said = f"{', '.join(broken[:3])}{' and more' if len(broken) > 3 else ''}"
            warnings.warn(f"weights are not finite ({said}), so the stamp has no formula", stacklevel=2)
    tensors, buffers = there.tensors_of(model, args)
    same = there.tied(tensors)
    finger, program = fingerprint(model, looked.ends, args, kwargs, shapes=looked.shapes)
    return Stamp(
        formula=line(stages_of(looked.reading)),
        stages=stages_of(looked.reading),
        norms=norms_of(looked),
        inputs=inputs,
        fingerprint=finger,
        samples={name: summed(there.sample(one)) for name, one in tensors.items() if name not in same},
        unsaved={name: summed(there.sample(one)) for name, one in there.unsaved(model).items()},
        tied=same,
        buffers=tuple(sorted(buffers)),
        unused=unused_in(program, tensors, buffers, there.plain_name),
        versions=environment(*PACKAGES[framework_to_read(model, (args, kwargs))]).versions,
    )


def inputs_of(inputs: Any, model: Any, there: Any, given: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that a stamp holds, for this model."""
    args, kwargs = made(inputs, lambda array: there.as_input(array, model))
    return there.with_weights(model, args, given), kwargs


def look(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Looked:
    """Read a model, and keep where the stream is."""
    name = framework_to_read(model, (args, kwargs))
    there, side = room(name), room(name).guarded
    inner = side.bare(model)
    seen = side.seen(inner, args, kwargs)
    shapes = "" if seen is None else digest(seen, side.plain_name)
    is_real = not any(side.is_empty(one) for one in side.tensors_of(model, args)[0].values())
    with side.eagerly():
        for place in range(PASSES):
            if place == 0 and seen is not None and is_real:
                program = replace(seen, real=True)  # the proof has values, and fails if it computes something else
            else:
                program = there.capture(inner, args, kwargs)
            found = reading_and_ends(
                program,
                lambda keep: there.values(program, inner, args, kwargs, keep),  # noqa: B023
            )
            if found is not None:
                reading, ends = found
                named = {side.plain_name(name): end for name, end in ends.items()}
                rounded = {side.plain_name(name): order for name, order in roundings(program).items()}
                return Looked(_plain(reading, side.plain_name), named, rounded, shapes)
    raise ValueError(
        "Each forward pass of this model computes something else, so nothing can be said of its checkpoint. "
        "Pass arguments that make it repeatable."
    )


def _plain(reading: Reading, plain: Callable[[str], str]) -> Reading:
    """A reading whose names are those that a file has."""
    stages = tuple(replace(one, where=plain(one.where)) for one in reading.stages)
    norms = tuple(
        replace(one, path=plain(one.path), parameters=tuple(plain(name) for name in one.parameters))
        for one in reading.norms
    )
    return replace(reading, stages=stages, norms=norms)


def fingerprint(
    model: Any,
    ends: Mapping[str, int],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    narrow: str | None = None,
    *,
    shapes: str = "",
) -> tuple[Fingerprint | None, Program]:
    """What the model does with the arguments, at the weights that it has; None where its weights have no values."""
    there = guarded(model, (args, kwargs))
    program, values = there.recorded(model, args, kwargs, frozenset(ends.values()))
    if not program.real:
        return None, program
    tensors, _ = there.tensors_of(model, args)
    used = (
        [there.dtype_of(one) for one in tensors.values()] + [there.precision() or "F64"] + ([narrow] if narrow else [])
    )
    outputs = [values[node] for node in program.outputs if node in values and values[node].dtype.kind == "f"]
    return (
        Fingerprint(
            dtype=narrowest(used),
            program=digest(program, there.plain_name),
            shapes=shapes,
            sites=tuple(_site(name, node, values[node]) for name, node in ends.items() if node in values),
            outputs=tuple(_output(one) for one in outputs[:MOST_OUTPUTS] if one.size),
        ),
        program,
    )


def narrowest(dtypes: Sequence[str]) -> str:
    """The narrowest dtype of real numbers among some."""
    return max((one for one in dtypes if one in NARROWNESS), key=NARROWNESS.index, default="F64")


def digest(program: Program, plain: Callable[[str], str]) -> str:
    """What was computed, without the dtypes that it was computed in: equal programs are the same function."""
    found = hashlib.sha256(repr(program.outputs).encode())
    for node in program.nodes:
        attrs = sorted((name, value) for name, value in node.attrs.items() if "dtype" not in name and name != "names")
        attrs += [("names", plain(name)) for name in node.attrs.get("names", ())]
        found.update(repr((node.kind, node.inputs, node.shape, attrs)).encode())
    return found.hexdigest()[:32]


def rms(values: NDArray[Any]) -> float:
    """The root of the mean square of all numbers."""
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if values.size else 0.0


def summed(sample: Sequence[float]) -> tuple[float, ...]:
    """Two sums over some numbers of a tensor: under signs, and of their sizes. They fit in a stamp."""
    values = np.asarray(sample, np.float64)
    if not values.size:
        return ()
    signs = drawn(values.size)
    return (_short(float(signs @ values)), _short(float(np.abs(values).sum())))


def stages_of(reading: Reading) -> tuple[StampedStage, ...]:
    """The stages of a reading, each with its ends."""
    return tuple(
        StampedStage(
            where=stage.where,
            layers=stage.layers,
            block=stage.block,
            streams=stage.streams,
            closing=stage.closing,
            proof=stage.proof,
            embed_norm=embed,
            final_norm=final,
        )
        for stage, embed, final in zip(reading.stages, reading.embed_norms, reading.final_norms, strict=True)
    )


def norms_of(looked: Looked) -> tuple[StampedNorm, ...]:
    """The norms of a model that was read."""
    return tuple(
        StampedNorm(
            path=norm.path,
            site=norm.site,
            kind=norm.kind,
            eps=norm.eps,
            axes=norm.axes,
            layers=norm.layers,
            parameters=norm.parameters,
            dtype=norm.dtype,
            rounded=next((looked.rounded[name] for name in norm.parameters if name in looked.rounded), ""),
        )
        for norm in looked.reading.norms
    )


def line(stages: Sequence[StampedStage]) -> str:
    """All stages in one line.

    >>> line([StampedStage(where="h", layers=2, block="x = x + attn(norm(x))", final_norm=True)])
    '2 x (x = x + attn(norm(x))); final norm(x)'
    """
    if not stages:
        return UNKNOWN
    said: list[str] = []
    for stage in stages:
        said += ["embed norm(x)"] if stage.embed_norm else []
        said += [f"{stage.layers} x ({stage.block})"]
        said += [f"from {'; '.join(stage.streams)}"] if stage.streams else []
        said += [f"closing {stage.closing}"] if stage.closing else []
        said += ["final norm(x)"] if stage.final_norm else []
    return "; ".join(said)


def unused_in(
    program: Program, tensors: Mapping[str, Any], buffers: frozenset[str], plain: Callable[[str], str]
) -> tuple[str, ...]:
    """The parameters that nothing of what comes out depends on."""
    alive = set(program.outputs)
    for number in range(len(program.nodes) - 1, -1, -1):
        if number in alive:
            alive.update(program.nodes[number].inputs)
    names = {plain(name) for number in alive for name in program.nodes[number].attrs.get("names", ())}
    read = names | {name.split("[")[0] for name in names}  # one row of a stack of layers
    return tuple(sorted(name for name in tensors if name not in read and name not in buffers))


def _output(values: NDArray[Any]) -> Output:
    size, sums = _sums(values)
    return Output(shape=values.shape, rms=size, sums=sums)


def _site(name: str, node: int, values: NDArray[Any]) -> Site:
    size, sums = _sums(values)
    return Site(name=name, node=node, rms=size, sums=sums)


def _sums(values: NDArray[Any]) -> tuple[float, tuple[float, ...]]:
    """The RMS, and sums under signs; what is not finite, such as a mask, counts as 0."""
    flat = values.astype(np.float64).reshape(-1)
    flat = np.where(np.isfinite(flat), flat, 0.0)
    signs = np.sign(drawn(SUMS * flat.size)).reshape(SUMS, flat.size)
    return _short(rms(flat)), tuple(_short(float(one)) for one in signs @ flat / math.sqrt(flat.size))


def _short(value: float) -> float:
    return float(f"{value:.7g}")
