"""The proof of a reading: the formula's own arithmetic on real tensors gives the model's own stream.

The text of the formula is parsed and run. Norms are computed anew from their input, epsilon and recorded gain and
bias; a sublayer gives what the model's gave, but only if it is fed what the model's was; sums, factors and learned
gains are the formula's. What comes out must be the model's next value of the stream.

Values change their layout on the way (windows, channels first, a class token apart), which a formula does not say:
two layouts of one value hold the same numbers, so values are compared as bags of numbers where their shapes differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from normula.formula import Formula
from normula.formula.run import Runner
from normula.formula.tree import Call, Gain
from normula.read.expression import Applied, Expression, Gained, Normed
from normula.read.graph import Graph
from normula.read.stream import Term, terms_of
from normula.read.strip import step_down
from normula.record.program import Node

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Values: TypeAlias = Mapping[int, Array]

TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-7, "bfloat16": 5e-2, "float16": 5e-3}
"""Relative to the largest number of a value: single precision after a hundred operations; half has 3 or 2 digits."""

MEASURED: Final = re.compile(r"\d\.\d{4,}|\d{6,}")
"""A number with as many digits as a measured constant is written with."""


class RefusedError(Exception):
    """The replay came out otherwise; the message says where."""


@dataclass(frozen=True, slots=True)
class Written:
    """A formula and what its parts are in the program: all that a replay needs.

    Attributes:
        text: the formula.
        made: what each call and gain stands for, in the order in which the text has them.
        starts, ends: the nodes of the streams before and after, by name.
        sums: the sums of the layer.
    """

    text: str
    made: tuple[Expression, ...]
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    sums: tuple[int, ...]


def needed(graph: Graph, written: Written) -> set[int]:
    """The nodes whose values a replay needs."""
    nodes = {*written.starts.values(), *written.ends.values(), *written.sums}
    compared = {*written.ends.values()}
    for total in written.sums:
        compared |= {term.node for term in terms_of(graph, total, {*written.starts.values()})}
    for part in written.made:
        match part:
            case Applied(entry=entry, ends=ends):
                compared.add(entry)
                nodes |= {*ends}
            case Normed(norm=norm):
                compared.add(graph.inputs(norm)[0])
                nodes |= {*graph.inputs(norm)}
            case Gained(gain=gain, node=node):
                compared |= {*graph.inputs(node), node}
                nodes.add(gain)
    nodes |= compared | {shift for one in compared for shift, _ in _shifts(graph, one)}
    nodes |= {part for one in compared for part in _joined(graph, one)}
    return {node for node in nodes if graph.number(node) is None}


@np.errstate(invalid="ignore", over="ignore")  # a stream that is not finite fails its replay without a warning
def replay(graph: Graph, written: Written, values: Values) -> None:
    """Run a formula on recorded values.

    Raises:
        RefusedError: it does not give the model's own stream.
    """
    _Replay(graph, written, values).run()


@dataclass(slots=True, eq=False)
class _Held:
    """A value on its way through a formula, in some layout."""

    replay: _Replay
    array: Array
    total: int | None = None

    def __add__(self, other: _Held) -> _Held:
        return self.replay.added(self, other)

    def __sub__(self, other: _Held) -> _Held:
        return self.replay.added(self, -other)

    def __neg__(self) -> _Held:
        return self * -1.0

    def __mul__(self, factor: _Factor | float) -> _Held:
        if isinstance(factor, _Factor):
            return factor.of(self)
        return _Held(self.replay, self.array * factor, self.total)

    def __rmul__(self, factor: _Factor | float) -> _Held:
        return self * factor

    def __truediv__(self, divisor: float) -> _Held:
        return self * (1 / divisor)


@dataclass(slots=True, eq=False)
class _Factor:
    """A learned factor, or what is divided by one, and the fixed numbers and further factors that stand before it."""

    replay: _Replay
    part: Gained
    number: float = 1.0
    divides: bool = False
    before: _Factor | None = None

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, _Held):
            return self.of(other)
        if isinstance(other, _Factor):
            return replace(other, before=self if other.before is None else self * other.before)
        return replace(self, number=self.number * other)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> _Factor:
        raise RefusedError("learned factors are added to one another")

    __radd__ = __sub__ = __rsub__ = __add__

    def __rtruediv__(self, number: float) -> _Factor:
        if self.before is not None:
            raise RefusedError("something is divided by two learned factors")
        return replace(self, number=number / self.number, divides=not self.divides)

    def __neg__(self) -> _Factor:
        return replace(self, number=-self.number)

    def of(self, value: _Held) -> _Held:
        product = self._product(value)
        return product if self.before is None else self.before.of(product)

    def _product(self, value: _Held) -> _Held:
        if self.divides:
            return self.replay.ungained(self.part, value) * self.number
        try:
            return self.replay.gained(self.part, value) * self.number
        except RefusedError:  # the model may multiply by the number first
            return self.replay.gained(self.part, value * self.number)


class _Replay:
    def __init__(self, graph: Graph, written: Written, values: Values) -> None:
        self.graph, self.written, self.values = graph, written, values
        self.formula = Formula(written.text)
        self.back = {new: old for old, new in self.formula.renumbering.items()}
        types = {graph[node].dtype for node in (*written.starts.values(), *written.ends.values(), *written.sums)}
        norms = [graph[part.norm] for part in written.made if isinstance(part, Normed)]
        types |= {norm.attrs["dtype"] for norm in norms if "dtype" in norm.attrs}
        self.tolerance = max(TOLERANCE.get(one, 1e-4) for one in types)  # the coarser of stream and statistics
        if MEASURED.search(written.text):
            self.tolerance = max(self.tolerance, 1e-5)  # of a constant, six digits are written
        whole = {*written.starts.values()}
        self.terms = {total: terms_of(graph, total, whole) for total in written.sums}

    def run(self) -> None:
        starts = {name: _Held(self, self.values[node]) for name, node in self.written.starts.items()}
        runner = Runner({}, self._call, lambda gain: self._gain(gain))
        result = runner.run(self.formula.tree, starts)
        for name, node in self.written.ends.items():
            self._same(result[name], node, "the new stream" if name == "x" else f"the new {name}")

    def _part(self, index: int) -> Expression:
        return self.written.made[self.back[index]]

    def _call(self, call: Call, value: _Held) -> _Held:
        if call.word == "stop":
            return value
        part = self._part(call.index)
        match part:
            case Normed(norm=norm):
                return self._normed(norm, value)
            case Applied():
                return self._applied(part, value)
        raise RefusedError(f"{call.word} stands where the model has a learned factor")

    def _gain(self, gain: Gain) -> _Factor:
        part = self._part(gain.index)
        if not isinstance(part, Gained):
            raise RefusedError("a learned factor stands where the model has a norm or a sublayer")
        return _Factor(self, part)

    def _normed(self, norm: int, value: _Held) -> _Held:
        source, *_ = self.graph.inputs(norm)
        return _Held(
            self, normalised(self.graph, norm, {**self.values, source: self._same(value, source, "a norm's input")})
        )

    def _applied(self, part: Applied, value: _Held) -> _Held:
        self._same(value, part.entry, f"what {part.kind} reads")
        if len(part.ends) == 1:
            return _Held(self, self.values[part.ends[0]])
        for total, terms in self.terms.items():
            found = [next((term for term in terms if self._leads(term.node, end)), None) for end in part.ends]
            if all(term is not None for term in found):
                parts = [s * self.values[t.node] for t, s in zip(found, part.signs, strict=True) if t is not None]
                return _Held(self, sum((_shaped(one, parts[0]) for one in parts[1:]), parts[0]), total)
        parts = [s * self.values[end] for end, s in zip(part.ends, part.signs, strict=True)]
        return _Held(self, sum((_shaped(one, parts[0]) for one in parts[1:]), parts[0]))

    def _leads(self, node: int, end: int) -> bool:
        """Whether a node is another layout of the end of a sublayer."""
        while node != end:
            step = step_down(self.graph, node)
            if step is None or step.how != "view":
                return False
            node = step.below
        return True

    def gained(self, part: Gained, value: _Held) -> _Held:
        node = self.graph[part.node]
        source = next(one for one in node.inputs if one != part.gain)
        factor = self.values[part.gain]
        try:
            array = self._same(value, source, "what a learned factor multiplies")
        except RefusedError:  # a canonical formula may multiply each term of a sum instead
            if factor.size > 1 and value.array.shape != node.shape:
                raise
            array = value.array
        return _Held(self, array / factor if node.kind == "div" else array * factor)

    def ungained(self, part: Gained, value: _Held) -> _Held:
        """What a learned factor was multiplied with, from the product."""
        array = self._same(value, part.node, "what is divided by a learned factor")
        factor = self.values[part.gain]
        return _Held(self, array * factor if self.graph.kind(part.node) == "div" else array / factor)

    def added(self, one: _Held, other: _Held) -> _Held:
        """Two values in the layout of the sum that the model has of them."""
        for total, terms in self.terms.items():
            first = one.array if one.total == total else self._laid_out(one, terms)
            second = other.array if other.total == total else self._laid_out(other, terms)
            if first is not None and second is not None:
                return _Held(self, first + _shaped(second, first), total)
        try:
            return _Held(self, one.array + _shaped(other.array, one.array))
        except ValueError:
            raise RefusedError("two values of different shapes are added that the model does not add") from None

    def _laid_out(self, value: _Held, terms: Sequence[Term]) -> Array | None:
        """A value in the layout of the one among these terms that has the same numbers; with constants added to it."""
        for term in terms:
            if term.node in self.values and (found := self._as(term.sign * value.array, term.node)) is not None:
                return term.sign * found
        return None

    def _same(self, value: _Held, node: int, what: str) -> Array:
        """The value in a node's layout.

        Raises:
            RefusedError: the node holds other numbers.
        """
        found = self._as(value.array, node)
        if found is None:
            difference = self._difference(value.array, self.values[node])
            raise RefusedError(f"{what} is not what the formula gives: {difference}")
        return found

    def _as(self, array: Array, node: int) -> Array | None:
        """An array in the layout of a node with the same numbers, before or after constants are added; else None."""
        target = self.values[node]
        if self._equal(array, target):
            return array if array.shape == target.shape and self._close(array, target) else target
        if any(
            array.size == self.values[part].size and self._equal(array, self.values[part]) for part in self._parts(node)
        ):
            return target  # with other tokens beside the stream's, as where one token attends to all
        moved = array
        for shift, factor in _shifts(self.graph, node):
            try:
                moved = moved + factor * self.values[shift]
            except (ValueError, KeyError):
                return None
            if moved.shape == array.shape and self._equal(moved, target):
                return target
        return None

    def _parts(self, node: int) -> list[int]:
        return [part for part in _joined(self.graph, node) if part in self.values]

    def _equal(self, one: Array, other: Array) -> bool:
        """Whether two arrays hold the same numbers, or one holds a part of the other's."""
        if one.shape == other.shape and self._close(one, other):
            return True
        if one.size == other.size:
            return self._close(np.sort(one, axis=None), np.sort(other, axis=None))
        if len(self.written.starts) > 1:  # two streams may be two parts of one value
            return False
        return self._within(*sorted((one, other), key=lambda array: array.size))

    def _close(self, one: Array, other: Array) -> bool:
        return bool(
            np.max(np.abs(one - other), initial=0.0) <= self.tolerance * max(np.max(np.abs(other), initial=0.0), 1e-6)
        )

    def _within(self, small: Array, large: Array) -> bool:
        """Whether every number of the smaller array that is not a fill is one of the larger's."""
        if small.size * 64 < large.size:
            return False
        pool = np.sort(large, axis=None)
        wanted = small.ravel()
        place = np.clip(np.searchsorted(pool, wanted), 1, pool.size - 1)
        nearest = np.minimum(np.abs(wanted - pool[place]), np.abs(wanted - pool[place - 1]))
        return bool(np.all(nearest <= self.tolerance * max(np.max(np.abs(pool)), 1e-6)))

    def _difference(self, one: Array, other: Array) -> str:
        if one.shape != other.shape:
            return f"shapes {one.shape} and {other.shape}"
        scale = max(float(np.max(np.abs(other), initial=0.0)), 1e-6)
        return f"they differ by {float(np.max(np.abs(one - other), initial=0.0)) / scale:.1e} of the largest number"


def _shaped(array: Array, like: Array) -> Array:
    """An array with batch and tokens apart, or as one, as another array has them."""
    return array.reshape(like.shape) if array.size == like.size else array


def normalised(graph: Graph, norm: int, values: Values) -> Array:
    """What a norm makes of its recorded input, by its definition in float64."""
    node = graph[norm]
    x: Array = np.asarray(values[node.inputs[0]], dtype=np.float64)
    axes, name = tuple(node.attrs["axes"]), node.attrs["name"]
    if name in ("dyt", "derf"):
        x = x * values[node.inputs[node.attrs["alpha"]]]
        x = x + values[node.inputs[node.attrs["shift"]]] if node.attrs["shift"] >= 0 else x
        x = np.tanh(x) if name == "dyt" else np.vectorize(math.erf)(x)
    if name in ("layernorm", "groupnorm"):
        x = x - x.mean(axis=axes, keepdims=True)
    if name in ("dyt", "derf"):
        pass
    else:
        over = np.sum if name == "l2norm" else np.mean
        x = x / _root(node, over(x**2, axis=axes, keepdims=True))
    x = x * node.attrs.get("scale", 1.0)
    for label in ("gain", "bias"):
        if (place := node.attrs[label]) >= 0:
            vector: Array = values[node.inputs[place]]
            if name == "groupnorm" and vector.ndim == 1:
                vector = vector.reshape((-1,) + (1,) * (x.ndim - 2))
            x = x * vector if label == "gain" else x + vector
    return x


def _root(node: Node, square: Array) -> Array:
    """A norm's divisor from the square of what it divides by."""
    root: Array = np.sqrt(square + node.attrs.get("under", node.attrs["eps"]))
    outside = float(node.attrs.get("outside", 0.0))
    bounded: Array = np.maximum(root, outside) if node.attrs.get("floor") else root + outside
    return bounded


def _joined(graph: Graph, node: int) -> tuple[int, ...]:
    """The sequences of tokens that a value was joined from; none where it was not."""
    while graph.kind(node) == "view":
        node = graph.inputs(node)[0]
    parts = graph.inputs(node) if graph.kind(node) == "join" else ()
    return parts if all(graph[part].shape[-1:] == graph[node].shape[-1:] for part in parts) else ()


def _shifts(graph: Graph, node: int) -> list[tuple[int, float]]:
    """The constants that were added to a value on its way, the last first, each with what it was multiplied by."""
    found, factor = [], 1.0
    while (step := step_down(graph, node)) is not None and step.how != "norm":
        if step.how == "shift":
            taken_off = graph.kind(node) == "sub" and graph.inputs(node)[1] == step.node
            found.append((step.node, -factor if taken_off else factor))
        if step.how in ("number", "shift"):
            factor *= step.factor
        node = step.below
    if graph.kind(node) in ("add", "sub"):
        found += [(term.node, factor * term.sign) for term in terms_of(graph, node) if graph.is_constant(term.node)]
    return found
