"""What one forward and one backward pass show, step by step, compiled once for every depth of the same kind.

The network runs in the open, with zeros added wherever a gradient is wanted: a new x, the input, the output, the last
norm. Their gradients are those of the values themselves. A second gradient is taken with every sublayer's output held
constant: the chain of the skip path's derivatives and nothing else.

Layers are followed by layers that do not run, so that depths nearby share a compiled program; several seeds run side
by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from normula.flax.context import Context
from normula.flax.core import Numbers, embedded, numbers_of, read_out, surroundings
from normula.flax.layer import StepRunner
from normula.flax.network import Group, Network, inside, network
from normula.flax.tree import Tree, at, leaves
from normula.formula.open import Open, points
from normula.formula.tree import Call
from normula.formula.words import STREAM
from normula.record import Pass, StepFlow, WeightFlow
from normula.spec import Step
from normula.spec.plan import ending, norm_kind, point_name

ROOM = (16, 64, 256, 1024)
"""Layers that programs have room for; deeper networks have a program of their own."""

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""What to ask of the compiler where a program is small: it compiles in a third of the time, and runs three times as
long."""

THOROUGH = {**QUICK, "xla_backend_optimization_level": 1}
"""The same for a large program: as fast as with every optimisation, and compiled in half the time."""

SMALL = 1 << 21
"""Numbers in all values of the stream (cases, layers, B, T, D) of a program that is still small."""

Loss: TypeAlias = Callable[[Array, Any], Array]


class Point(NamedTuple):
    """One statement that made a new x; each (B, T, D)."""

    before: Array
    after: Array
    branch: Array
    skip: Array


class Taps(NamedTuple):
    """Zeros that are added to values, for their gradients.

    Attributes:
        input: to the embedded input.
        first: to the stream before the first layer.
        layers: for each group, to each new x of each layer, (count, points, B, T, D).
        output: to the output.
        norm_in, norm_out: to what goes into the last norm and what comes out of it; one for each layer where the last
            norm is in a layer, None where there is none.
    """

    input: Array
    first: Array
    layers: tuple[Array, ...]
    output: Array
    norm_in: Array | None
    norm_out: Array | None


@dataclass(frozen=True, slots=True)
class Case:
    """One set of parameters and inputs to be measured.

    Attributes:
        seed, training_step: kept in the record.
        params: a tree of arrays.
        inputs: (B, T, D), or (B, T) ids.
        target: what the loss compares the output with.
    """

    seed: int
    training_step: int
    params: Mapping[str, Any]
    inputs: Array
    target: Array


def direction_loss(output: Array, direction: Array) -> Array:
    """The output along a direction of the same shape."""
    return jnp.sum(output * direction)


def entropy_loss(output: Array, targets: Array) -> Array:
    """Mean cross-entropy in nats; logits (B, T, V) and ids (B, T), or (B, classes) and (B,); -1 is not scored."""
    logits = output.astype(jnp.promote_types(output.dtype, jnp.float32))
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(targets, 0)[..., None], axis=-1)
    return -picked[..., 0].mean(where=targets >= 0)


def measure(network: Network, cases: Sequence[Case], loss: Loss, *, is_loss: bool = False) -> list[Pass]:
    """One pass over the stack for each case, without dropout; all in one compiled call.

    Args:
        network: what all of them are of.
        cases: parameters and inputs of the same shapes.
        loss: `direction_loss` or `entropy_loss`.
        is_loss: whether `loss` is a training loss, whose value is kept.
    """
    if network.spec.placed.operator is not None:
        raise ValueError(f"{network.spec.placed.name} holds several streams in an operator; one stream is measured")
    wide, active = _roomy(network), tuple(group.count for group in network.groups)
    dtype = jnp.result_type(*[array.dtype for array in jax.tree.leaves(cases[0].params)] or [float])
    numbers = _padded(numbers_of(network, dtype), network, wide, axis=0)
    params = _stacked([case.params for case in cases])
    padded = {
        name: _pad(own, _room(network, wide, name), axis=1) if name in _names(network) else own
        for name, own in params.items()
    }
    inputs, targets = (jnp.stack([jnp.asarray(array) for array in arrays]) for arrays in _arrays(cases))
    steps = jnp.asarray([case.training_step for case in cases], dtype)
    size = math.prod((*inputs.shape[:3], wide.spec.layers, network.spec.width))
    run = _quick if size < SMALL else _thorough
    found = run(wide, padded, numbers, jnp.asarray(active), inputs, targets, steps, loss=loss, dtype=dtype)
    found = jax.tree.map(np.asarray, found)
    return [
        _record(network, jax.tree.map(lambda array, i=i: array[i], found), case, is_loss)
        for i, case in enumerate(cases)
    ]


def _measured(
    network: Network,
    params: Tree,
    numbers: Numbers,
    active: Array,
    inputs: Array,
    targets: Array,
    steps: Array,
    *,
    loss: Loss,
    dtype: Any,
) -> dict[str, Any]:
    """All that is seen, with the cases as the first axis."""

    def one(params: Tree, inputs: Array, target: Array, step: Array) -> dict[str, Any]:
        taps = _taps(network, params, inputs, dtype)

        def run(taps: Taps, params: Tree, hold: Array) -> tuple[Array, Any]:
            return _loss(network, params, numbers, active, inputs, target, step, taps, loss, dtype, hold)

        both = jax.vmap(jax.value_and_grad(run, argnums=(0, 1), has_aux=True), in_axes=(None, None, 0))
        (value, (points, size)), (gradients, weights) = both(taps, params, jnp.array([False, True]))
        first, points, size = jax.tree.map(lambda array: array[0], (gradients, points, size))
        return {
            "value": value[0],
            "points": [jax.vmap(jax.vmap(_seen))(one) for one in points],
            "output": length(first.output),
            # with the sublayers as they are, and held constant
            "input": jax.vmap(length)(gradients.input),
            "first": jax.vmap(length)(gradients.first),
            "layers": [jax.vmap(jax.vmap(jax.vmap(length)))(one) for one in gradients.layers],
            "norm_passes": _norm_passes(network, params, active, size, first),
            "weights": jax.tree.map(lambda array: array[0], weights),
        }

    return jax.vmap(one)(params, inputs, targets, steps)


_STATIC = ("network", "loss", "dtype")
_quick = jax.jit(_measured, static_argnames=_STATIC, compiler_options=QUICK)
_thorough = jax.jit(_measured, static_argnames=_STATIC, compiler_options=THOROUGH)


def _loss(
    network: Network,
    params: Tree,
    numbers: Numbers,
    active: Array,
    inputs: Array,
    target: Array,
    step: Array,
    taps: Taps,
    loss: Loss,
    dtype: Any,
    hold: Array,
) -> tuple[Array, Any]:
    """The loss; and each point of each group, and what the last norm divides by."""
    start = embedded(network, params, inputs, dtype, None)[0] + taps.input
    around = surroundings(network, params, start, None, None, None, step, None)
    end = ending(network.plan)

    def outside(step: Step, streams: Mapping[str, Array], norm_taps: Any = None) -> tuple[Array, Any]:
        runner = _OpenStep(network, step, params.get(step.prefix, {}), 1, 0, None, around)
        runner.prepare(hold, (), end, norm_taps)
        x: Array = runner.statements(step.formula.tree, streams)[STREAM]
        return x, runner.size

    x, _ = outside(network.plan.embed, {STREAM: start})
    x = x + taps.first
    streams = {STREAM: x} | {name: outside(step, {STREAM: x})[0] for name, step in network.plan.starts}
    points: list[Any] = []
    size = None
    for place, group in enumerate(network.groups):
        is_last = place == len(network.groups) - 1
        norm_taps = (taps.norm_in, taps.norm_out) if is_last and end and end[0] is not network.plan.final else None
        streams, (seen, sizes) = _group(
            network, group, params[group.name], numbers[place], active[place], streams, around, hold,
            taps.layers[place], end, norm_taps,
        )  # fmt: skip
        points.append(seen)
        if norm_taps is not None:
            size = sizes
    in_final = end is not None and end[0] is network.plan.final
    closed, final_size = outside(network.plan.final, streams, (taps.norm_in, taps.norm_out) if in_final else None)
    output = read_out(network, params, closed, None) + taps.output
    return loss(output, target), (points, final_size if in_final else size)


def _group(
    network: Network,
    group: Group,
    own: Tree,
    numbers: Sequence[Sequence[Array]],
    active: Array,
    streams: dict[str, Array],
    around: Context,
    hold: Array,
    taps: Array,
    end: tuple[Step, Call] | None,
    norm_taps: Any,
) -> tuple[dict[str, Array], Any]:
    """The layers of a group that are there, each point seen."""

    def run(streams: dict[str, Array], one: Any) -> tuple[dict[str, Array], Any]:
        own, numbers, taps, norm_taps = one
        seen: list[Point] = []
        size = None
        places = 0
        for step, values in zip(group.steps, numbers, strict=True):
            runner = _OpenStep(network, step, own, 2, group.first, values, around, places)
            runner.prepare(hold, taps[len(seen) :], _same_step(end, step), norm_taps)
            streams = runner.statements(step.formula.tree, streams)
            seen += runner.seen
            places += len(step.sublayers)
            size = runner.size if runner.size is not None else size
        return streams, (Point(*(jnp.stack(one) for one in zip(*seen, strict=True))), size)

    def layer(streams: dict[str, Array], one: Any) -> tuple[dict[str, Array], Any]:
        place, rest = one[0], one[1:]
        nothing = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), jax.eval_shape(run, streams, rest)[1])
        return jax.lax.cond(place < active, run, lambda streams, _: (streams, nothing), streams, rest)

    every = (jnp.arange(group.count), own, numbers, taps, norm_taps)
    return jax.lax.scan(layer, streams, every)


class _OpenStep(Open, StepRunner):
    """Runs one step in the open."""

    def prepare(self, hold: Array, taps: Any, end: tuple[Step, Call] | None, norm_taps: Any) -> None:
        """What to hold, what to add where, and which norm is the last."""
        self.hold, self.taps, self.norm_taps = hold, taps, norm_taps
        self.last = None if end is None or norm_taps is None or end[0] is not self.step else end[1]
        self.seen: list[Point] = []
        self.size: Array | None = None

    def kept(self, x: Array) -> Array:
        tapped: Array = x + self.taps[len(self.seen)]
        return tapped

    def point(self, place: int, before: Array, after: Array, branch: Array | None, skip: Array | None) -> None:
        zero = jnp.zeros_like(before)
        seen = Point(before, after, zero if branch is None else branch, zero if skip is None else skip)
        self.seen.append(jax.tree.map(jax.lax.stop_gradient, seen))

    def sublayer(self, what: Call, x: Array, own: Any) -> Array:
        return _gated(super().sublayer(what, x, own), self.hold)

    def norm(self, what: Call, x: Array, own: Any) -> Array:
        if self.last is None or what.index != self.last.index:
            return super().norm(what, x, own)
        spec = self.network.spec
        x = x + self.norm_taps[0]
        self.size = jax.lax.stop_gradient(_size(norm_kind(spec, what.word), x, spec.eps))
        return super().norm(what, x, own) + self.norm_taps[1]


def _same_step(end: tuple[Step, Call] | None, step: Step) -> tuple[Step, Call] | None:
    """The ending, where it is in the layer's step of the same place in its layer."""
    if end is None or end[0].prefix.split(".")[2:] != step.prefix.split(".")[2:] or step.prefix in ("embed", "final"):
        return None
    return step, end[1]


def _taps(network: Network, params: Tree, inputs: Array, dtype: Any) -> Taps:
    """Zeros of the shapes that they are added to."""
    spec = network.spec
    x = jnp.zeros((*inputs.shape[:2], spec.width), dtype)
    output = jax.eval_shape(lambda x: read_out(network, params, x, None), x)
    end = ending(network.plan)
    in_final = end is not None and end[0] is network.plan.final
    many = None if end is None else x if in_final else jnp.zeros((network.groups[-1].count, *x.shape), dtype)
    return Taps(
        input=x,
        first=x,
        layers=tuple(jnp.zeros((group.count, _points(group), *x.shape), dtype) for group in network.groups),
        output=jnp.zeros(output.shape, output.dtype),
        norm_in=many,
        norm_out=many,
    )


def _points(group: Group) -> int:
    return sum(len(points(step.formula.tree)) for step in group.steps)


def _norm_passes(network: Network, params: Tree, active: Array, size: Any, gradients: Taps) -> Array:
    """Share of the gradient behind the last norm that its Jacobian lets through.

    A norm's Jacobian is (1/size) P diag(gain) with a projection P that removes the directions in which the output
    cannot move; the share is |P g| / |g|.
    """
    end = ending(network.plan)
    if end is None or norm_kind(network.spec, end[1].word) not in ("layernorm", "rmsnorm", "l2norm"):
        return jnp.full((), jnp.nan)
    step, call = end
    passed, arriving = gradients.norm_in, gradients.norm_out
    assert passed is not None
    assert arriving is not None
    if step is network.plan.final:
        own = at(params, (step.prefix, *inside(step, call.index)[1:]))
    else:
        group = network.groups[-1]
        last = active[-1] - 1
        passed, arriving, size = passed[last], arriving[last], size[last]
        own = at(params, (group.name, *inside(step, call.index)[2:]))
        own = {name: array[last] for name, array in own.items()}
    arriving = arriving * own["scale"] if "scale" in own else arriving
    total = length(arriving)
    return jnp.where(total > 0, length(passed * size) / jnp.where(total > 0, total, 1), jnp.nan)


@jax.custom_vjp
def _gated(x: Array, hold: Array) -> Array:
    """The value as it is; no gradient goes back through it where it is held."""
    return x


_gated.defvjp(
    lambda x, hold: (x, hold),
    lambda hold, gradient: (jnp.where(hold, jnp.zeros_like(gradient), gradient), None),
)


def _seen(one: Point) -> dict[str, Array]:
    """The numbers of one point."""
    return {
        "rms_before": _rms(one.before),
        "rms_after": _rms(one.after),
        "branch_rms": _rms(one.branch),
        "skip_rms": _rms(one.skip),
        "token_cosine": _token_cosine(one.after),
        "centred_cosine": _token_cosine(one.after - one.after.mean(axis=-1, keepdims=True)),
        "step_cosine": _step_cosine(one.before, one.after),
        "largest": jnp.abs(one.after).max(),
        "swallowed": _swallowed(one.branch, one.skip),
    }


def _size(kind: str, x: Array, eps: float) -> Array:
    """What the norm divides a token by, (B, T, 1)."""
    if kind == "layernorm":
        x = x - x.mean(axis=-1, keepdims=True)
    square = jnp.square(x)
    mean = square.sum(axis=-1, keepdims=True) if kind == "l2norm" else square.mean(axis=-1, keepdims=True)
    return jnp.sqrt(mean + eps)


def length(x: Array) -> Array:
    """Norm over everything; the squares of what is very small or very large are never formed."""
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    largest = jnp.abs(x).max(initial=0.0)
    scale = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    return scale * jnp.sqrt(jnp.sum(jnp.square(x / scale)))


def _rms(x: Array) -> Array:
    return length(x) / math.sqrt(x.size)


def _step_cosine(before: Array, after: Array) -> Array:
    return (_unit(before) * _unit(after)).sum(axis=-1).mean()


def _token_cosine(x: Array) -> Array:
    """Mean cosine between two different tokens of a sequence, (B, T, D); nan for a single token."""
    T = x.shape[1]
    if T == 1:
        return jnp.full((), jnp.nan, x.dtype)
    units = _unit(x)
    # less each token with itself: 1, or 0 for a token of zeros, which is like no other
    pairs = jnp.square(units.sum(axis=1)).sum(axis=-1) - jnp.square(units).sum(axis=(1, 2))
    return (pairs / (T * (T - 1))).mean()


def _swallowed(branch: Array, skip: Array) -> Array:
    """Share of a branch's numbers that a stream in bfloat16 would lose; see `normula.flow.sizes`."""
    _, exponents = jnp.frexp(skip)
    added = branch != 0
    lost = (jnp.abs(branch) < jnp.ldexp(jnp.ones_like(skip), exponents - 9)) & (skip != 0) & added
    return lost.sum() / jnp.maximum(added.sum(), 1)


def _unit(x: Array) -> Array:
    """Each token at length 1; a token of zeros stays."""
    largest = jnp.abs(x).max(axis=-1, keepdims=True)
    x = x / jnp.where(largest > 0, largest, 1)
    length = jnp.sqrt(jnp.square(x).sum(axis=-1, keepdims=True))
    return x / jnp.where(length > 0, length, 1)


def _record(network: Network, found: Mapping[str, Any], case: Case, is_loss: bool) -> Pass:
    """The numbers of one case, of the layers that are there."""
    before, held = ([float(one)] for one in found["first"])
    named: list[tuple[int, str]] = []
    seen: list[dict[str, float]] = []
    for place, group in enumerate(network.groups):
        layers = slice(0, group.count)
        before += found["layers"][place][0][layers].ravel().tolist()
        held += found["layers"][place][1][layers].ravel().tolist()
        for layer in network.plan.layers[group.first : group.first + group.count]:
            for step in layer:
                l = int(step.symbols["l"])
                named += [(l, point_name(step, at)) for at in points(step.formula.tree)]
        own = {name: array[layers].ravel().tolist() for name, array in found["points"][place].items()}
        seen += [dict(zip(own, values, strict=True)) for values in zip(*own.values(), strict=True)]
    steps = [
        StepFlow(layer=l, name=name, gradient=gradient, skip_gradient=skip, **one)
        for (l, name), one, gradient, skip in zip(named, seen, before[:-1], held[:-1], strict=True)
    ]
    return Pass(
        seed=case.seed,
        training_step=case.training_step,
        loss=float(found["value"]) if is_loss else math.nan,
        steps=tuple(steps),
        weights=_weights(network, case.params, found["weights"]),
        input_gradient=float(found["input"][0]),
        skip_gradient=float(found["input"][1]),
        output_gradient=float(found["output"]),
        norm_passes=float(found["norm_passes"]),
    )


def _weights(network: Network, params: Mapping[str, Any], gradients: Mapping[str, Any]) -> tuple[WeightFlow, ...]:
    """By the plan's names, in the plan's order; in NumPy, since a program for each of them takes long to compile."""
    own: dict[str, WeightFlow] = {}
    for leaf in leaves(network):
        weights, slopes = (np.asarray(at(tree, leaf.path), np.float64) for tree in (params, gradients))
        for place, name in enumerate(leaf.names):
            weight, slope = (weights[place], slopes[place]) if leaf.stacked else (weights, slopes)
            norm, gradient = (float(np.linalg.norm(one)) for one in (weight, slope))
            own[name] = WeightFlow(name=name, norm=norm, gradient=gradient)
    return tuple(own[name] for name in network.plan.parameters)


def _roomy(own: Network) -> Network:
    """A network of the same kind with room for more layers, where one program can serve both."""
    room = next((room for room in ROOM if room >= own.spec.layers), None)
    if len(own.groups) > 1 or room is None:
        return own
    wide = network(replace(own.spec, layers=room, seed=0, init="normal"), own.makers)
    return wide if len(wide.groups) == 1 else own


def _names(network: Network) -> set[str]:
    return {group.name for group in network.groups}


def _room(network: Network, wide: Network, name: str) -> int:
    """Layers that a group lacks."""
    counts = {group.name: group.count for group in network.groups}
    return next(group.count - counts[name] for group in wide.groups if group.name == name)


def _padded(numbers: Numbers, own: Network, wide: Network, axis: int) -> Numbers:
    return tuple(_pad(one, _room(own, wide, group.name), axis) for one, group in zip(numbers, own.groups, strict=True))


def _pad(tree: Any, room: int, axis: int) -> Any:
    """Zeros behind what is there."""

    def one(array: Array) -> Array:
        return jnp.pad(array, [(0, room if place == axis else 0) for place in range(array.ndim)])

    return jax.tree.map(one, tree) if room else tree


def _stacked(trees: Sequence[Mapping[str, Any]]) -> Any:
    return jax.tree.map(lambda *arrays: jnp.stack([jnp.asarray(array) for array in arrays]), *trees)


def _arrays(cases: Sequence[Case]) -> tuple[list[Array], list[Array]]:
    return [case.inputs for case in cases], [case.target for case in cases]
