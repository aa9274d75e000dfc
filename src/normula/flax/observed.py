"""A forward pass of any model of JAX, watched node by node and differentiated again and again.

What is watched is the jaxpr, walked equation by equation under `jax.vjp`. A zero that is added to a node's value has
that node's gradient; a value behind `stop_gradient` is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpy.typing import NDArray

from normula.data import random_direction
from normula.flax.capture import capture, computes, run
from normula.flax.capture.opened import Leaf, Opened, opened
from normula.flax.capture.recorder import Recorder
from normula.record.flow import WeightFlow
from normula.record.program import Program
from normula.record.stream import Probed, Watched

SAME: Final = 1e-3
"""How far the gradients of the walked jaxpr may be from the model's own, relative to the largest: single precision."""


def open_capture(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """What a forward pass computes.

    Raises:
        ValueError: some array has a shape only, so nothing has a value.
        Exception: whatever the call raises when it is traced.
    """
    program = capture(model, args, kwargs)
    if not program.real:
        raise ValueError("Arrays that have a shape only give no values. Measure the model with real ones, or a twin.")
    return program


@contextmanager
def observed(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], program: Program, wanted: Watched
) -> Iterator[Observed | None]:
    """Inside: a watched pass; None where it computes something else than the program says.

    Args:
        model, args, kwargs: as they were for `open_capture`.
        program: what it gave.
        wanted: what the pass should show.
    """
    found = Observed(opened(model, args, kwargs), wanted)
    yield found if computes(found.recorder, program) else None


class Observed:
    """A watched pass; see `normula.flow.observed`."""

    def __init__(self, whole: Opened, wanted: Watched) -> None:
        self.whole = whole
        self.jaxpr, self.tree = whole.traced()
        self.weights: dict[int, Leaf] = {}
        self.recorder = _Seen(wanted.values)
        run(whole, self.jaxpr, self.recorder, self._value)
        self.values: dict[int, NDArray[Any]] = self.recorder.kept
        floats = {node for node in self.recorder.seen if _is_float(self.recorder.nodes[node].dtype)}
        self.edges = frozenset(wanted.edges & floats)
        stops = [{end} & floats or set(others) & floats for end, others in wanted.held.items()]
        self.unheld = not all(stops)
        self._stops = frozenset(node for those in stops for node in those)

    def probed(self, nodes: Sequence[int], seed: int, probe: str, loss: Callable[[Any], Any] | None) -> Probed:
        """One probe: a backward pass as it is, and one with the sublayers held."""
        value, ends = self._ends(seed, probe, loss)
        (gradients, weights), (alone, _) = (side.pull(ends, {}) for side in (self._free, self._held))
        return Probed(
            loss=math.nan if loss is None else value,
            gradients={node: _array(gradients[node]) for node in nodes},
            alone={node: _array(alone[node]) for node in nodes},
            output=math.sqrt(sum(_length(one) ** 2 for one in ends.values())),
            weights=tuple(
                WeightFlow(name="/".join(leaf.path), norm=_length(leaf.array), gradient=_length(weights[place]))
                for place, leaf in self.weights.items()
            ),
        )

    def pulled(self, node: int, direction: NDArray[Any], onto: int) -> NDArray[Any] | None:
        """The gradient of a value along a direction with respect to another."""
        gradients, _ = self._free.pull({}, {node: direction})
        return _array(gradients[onto])

    @cached_property
    def own_rules(self) -> bool:
        """Whether the model has rules of its own for gradients, which are not those of its forward."""
        if not self.weights or "custom_" not in str(self.jaxpr):
            return False
        floats = self._free.floats
        ends = {place: random_direction(one.shape, 0) for place, one in floats.items() if one.size and one.ndim}
        _, found = self._free.pull(ends, {})

        def outputs(weights: Mapping[int, Any]) -> dict[int, Any]:
            arrays = [weights.get(place, leaf.array) for place, leaf in enumerate(self.whole.leaves)]
            constants = [weights.get(-1 - place, one) for place, one in enumerate(self.jaxpr.consts)]
            results = jaxpr_as_fun(ClosedJaxpr(self.jaxpr.jaxpr, constants))(*arrays)
            return {place: results[place] for place in floats}

        results, pull = jax.vjp(outputs, {place: jnp.asarray(leaf.array) for place, leaf in self.weights.items()})
        (own,) = pull(_like(results, ends))
        largest = max(_length(one) for one in own.values())
        apart = max(_length(own[place] - found[place]) for place in own)
        return apart > SAME * largest

    # ---- the two passes that are differentiated

    @cached_property
    def _free(self) -> _Side:
        return _Side(self._forward(frozenset()), self._taps(), self._own_weights())

    @cached_property
    def _held(self) -> _Side:
        return _Side(self._forward(self._stops), self._taps(), self._own_weights())

    def _taps(self) -> dict[int, Any]:
        nodes = self.recorder.nodes
        return {node: jnp.zeros(nodes[node].shape, nodes[node].dtype) for node in self.edges}

    def _own_weights(self) -> dict[int, Any]:
        return {place: jnp.asarray(leaf.array) for place, leaf in self.weights.items()}

    def _forward(self, stops: frozenset[int]) -> Callable[..., Any]:
        """From taps and weights to the results of floating type and the watched values, with the other results."""

        def forward(taps: dict[int, Any], weights: dict[int, Any]) -> Any:
            recorder = _Tapped(taps, stops)
            outputs = run(self.whole, self.jaxpr, recorder, lambda leaf, place: weights.get(place, leaf.array))
            results = {place: jnp.asarray(one.value) for place, one in enumerate(outputs)}
            floats = {place: one for place, one in results.items() if _is_float(str(one.dtype))}
            others = {place: one for place, one in results.items() if place not in floats}
            return (floats, recorder.watched), others

        return forward

    def _ends(self, seed: int, probe: str, loss: Callable[[Any], Any] | None) -> tuple[float, dict[int, Any]]:
        """The number that is differentiated, and its gradient with respect to what the model returned."""
        floats, others = self._free.floats, self._free.others
        if loss is None and not floats:
            raise ValueError("The model returns no array of floating-point numbers. Give a loss of what it returns.")

        def number(floats: dict[int, Any]) -> Any:
            if loss is None:
                first = floats[min(floats)]
                first = first if first.ndim else first.reshape(1)
                weight = random_direction(first.shape, seed) if probe == "random" else np.ones(first.shape)
                return (first * jnp.asarray(weight, first.dtype)).sum()
            both = floats | others
            value = loss(jax.tree.unflatten(self.tree, [both[place] for place in sorted(both)]))
            if np.size(value) != 1:
                raise ValueError(f"A loss gives one number in an array, not {np.shape(value)}.")
            return jnp.reshape(value, ())

        value, ends = jax.value_and_grad(number)(floats)
        return float(value), ends

    def _value(self, leaf: Leaf, place: int) -> Any:
        if leaf.kind == "parameter" and _is_float(str(leaf.array.dtype)):
            self.weights[place] = leaf
        return leaf.array


class _Side:
    """A forward pass that can be pulled back."""

    def __init__(self, forward: Callable[..., Any], taps: dict[int, Any], weights: dict[int, Any]) -> None:
        (self.floats, self.watched), self._pull, self.others = jax.vjp(forward, taps, weights, has_aux=True)

    def pull(self, ends: Mapping[int, Any], inside: Mapping[int, Any]) -> Any:
        """Gradients of taps and of weights, from those of results and of watched values; what is not given is 0."""
        return self._pull((_like(self.floats, ends), _like(self.watched, inside)))


class _Seen(Recorder):
    """A recorder that notes the nodes whose values go on."""

    def __init__(self, keep: frozenset[int]) -> None:
        super().__init__(keep)
        self.seen: set[int] = set()

    def passed(self, node: int, value: Any) -> Any:
        self.seen.add(node)
        return value


class _Tapped(Recorder):
    """A recorder that adds to the values of some nodes, and lets no gradient through those of others."""

    def __init__(self, taps: Mapping[int, Any], stops: frozenset[int]) -> None:
        super().__init__(frozenset())
        self._taps, self._stops = taps, stops
        self._passed: dict[int, Any] = {}

    @property
    def watched(self) -> dict[int, Any]:
        """The values of the nodes that are added to."""
        return {node: self._passed[node] for node in self._taps}

    def passed(self, node: int, value: Any) -> Any:
        """A node may come again, by an operation that changes nothing; it is added to once."""
        if node not in self._taps and node not in self._stops:
            return value
        if node not in self._passed:
            value = jax.lax.stop_gradient(value) if node in self._stops else value
            self._passed[node] = value + self._taps[node] if node in self._taps else value
        known = self._passed[node]
        return known if (known.shape, known.dtype) == (value.shape, value.dtype) else value


def _like(arrays: Mapping[int, Any], given: Mapping[int, Any]) -> dict[int, Any]:
    """What is given, in the types of these arrays, and zeros elsewhere."""
    return {
        key: jnp.asarray(given[key], one.dtype) if key in given else jnp.zeros(one.shape, one.dtype)
        for key, one in arrays.items()
    }


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _array(value: Any) -> NDArray[Any]:
    return np.asarray(value).astype(np.float64)


def _length(value: Any) -> float:
    return float(np.linalg.norm(_array(value).ravel()))
