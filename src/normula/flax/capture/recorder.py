"""Here lives Recorder: the nodes of a Program as they are made, with what each depends on and where it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from normula.flax.capture.calls import Label, calls, filled
from normula.record.program import LEAVES, Call, Kind, Node

UNIFORM_SIZE: Final = 1 << 16
"""Up to this many elements, an array of constants is looked through for being one number everywhere."""

SAME: Final = frozenset(("expand", "unsqueeze", "squeeze", "_to_copy", "clone", "alias", "detach"))
"""Views that change neither a value nor its order."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a variable of a jaxpr holds.

    Attributes:
        node: of the program.
        aval: shape and type.
        value: where it was computed.
        fixed: whether it depends on nothing but numbers that are written in the code.
    """

    node: int
    aval: Any
    value: Any = None
    fixed: bool = False


def shaped(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """What is known of a value that is not computed."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


class Recorder:
    """The nodes of one pass.

    Args:
        keep: the nodes whose values are kept, in `kept`.
    """

    def __init__(self, keep: frozenset[int]) -> None:
        self.nodes: list[Node] = []
        self.kept: dict[int, NDArray[Any]] = {}
        self.scope: Label = ()
        self.floor: Label = ()
        self.compact: dict[int, int] = {}
        self.factors: dict[int, tuple[Held, Held]] = {}
        self.casts: dict[int, Held] = {}
        self.parts: dict[tuple[int, int], Held] = {}
        self.homes: list[Label | None] = []
        self.stacks: dict[int, int] = {}
        self._keep = keep
        self._labels: list[Label | None] = []
        self._floors: list[Label] = []
        self._learned: list[bool] = []
        self._given: list[bool] = []
        self._numbers: dict[float, int] = {}
        self._same: list[int] = []
        self._twins: dict[Any, int] = {}

    # ---- nodes

    def emit(
        self, kind: Kind, inputs: Sequence[int], aval: Any, value: Any = None, home: Label | None = None, **attrs: Any
    ) -> int:
        """A node with this shape and type; its value may be a function that computes it where it is kept.

        What a weight makes of a value it makes once: a function of JAX may say the same twice, and it runs once.
        """
        number = len(self.nodes)
        node = Node(kind, tuple(inputs), tuple(aval.shape), str(aval.dtype), 0, attrs)
        same = (kind, tuple(self._same[one] for one in inputs), node.shape, node.dtype, repr(attrs))
        twin = self._twins.setdefault(same, number) if inputs or "number" in attrs else number
        if twin != number and any(self.is_given(one) for one in inputs) and any(self.is_weight(one) for one in inputs):
            return twin
        self._same.append(twin)
        self.nodes.append(node)
        self._learned.append(kind == "parameter" or any(self._learned[one] for one in inputs))
        self._given.append(kind == "input" or any(self._given[one] for one in inputs))
        homes = [self.homes[one] for one in inputs if self.is_weight(one)]
        found = home if home is not None else next((one for one in homes if one is not None), None)
        self.homes.append(found)
        self._labels.append(self._label(found))
        self._floors.append(self.floor)
        if number in self._keep:
            self.kept[number] = _kept(value() if callable(value) else value)
        return number

    def passed(self, node: int, value: Any) -> Any:
        """What goes on from a node whose value was computed: a pass that is watched may put something in its way."""
        return value

    def read(self, ins: list[Held]) -> list[Held]:
        """What an operation reads: a pass that is changed may give it something else."""
        return ins

    def number(self, value: float) -> int:
        """The node of a number that is written in the code."""
        if value not in self._numbers:
            aval = shaped((), np.float32)
            self._numbers[value] = self.emit("constant", (), aval, np.float32(value), number=value)
        return self._numbers[value]

    def constant(self, aval: Any, value: Any, number: float | None = None) -> Held:
        """The node of a value that is computed from such numbers."""
        if number is None and value is not None and 0 < np.size(value) <= UNIFORM_SIZE and _is_real(aval.dtype):
            array = np.asarray(value).astype(np.float64)
            number = float(array.flat[0]) if (array == array.flat[0]).all() else None
        attrs: dict[str, Any] = {} if number is None else {"number": number}
        return Held(self.emit("constant", (), aval, value, **attrs), aval, value, fixed=True)

    def is_weight(self, node: int) -> bool:
        """Whether a node is made of parameters and nothing that flows."""
        return self._learned[node] and not self._given[node]

    def is_given(self, node: int) -> bool:
        """Whether a node depends on an input of the model."""
        return self._given[node]

    def flows(self, node: int) -> bool:
        """Whether a node is a value of floating type that depends on an input."""
        return self._given[node] and self.nodes[node].dtype.startswith(("float", "bfloat", "complex"))

    def number_of(self, node: int) -> float | None:
        """The one number that a constant holds."""
        found = self.nodes[node].attrs.get("number") if self.nodes[node].kind == "constant" else None
        return None if found is None else float(found)

    def through(self, node: int, others: frozenset[str] = frozenset()) -> int:
        """A value before views that change nothing of it, and such others."""
        while self.nodes[node].kind == "view" and (self.nodes[node].attrs["name"] in SAME | others):
            node = self.nodes[node].inputs[0]
        return node

    def square(self, node: int) -> int | None:
        """b, where a node is b squared."""
        node = self.through(node)
        one = self.nodes[node]
        if one.kind == "pow" and self.number_of(one.inputs[1]) == 2:
            return one.inputs[0]
        same = one.kind == "mul" and self.through(one.inputs[0]) == self.through(one.inputs[1])
        return one.inputs[0] if same else None

    def turn(self, node: int, inputs: tuple[int, int]) -> None:
        """Give a product its factors in another order."""
        one = self.nodes[node]
        self.nodes[node] = Node(one.kind, inputs, one.shape, one.dtype, one.call, {**one.attrs, "turned": True})

    def part(self, whole: Held, index: int) -> Held | None:
        """One layer's slice of a stacked parameter as a parameter of its own; None where it is no parameter."""
        node = self.nodes[whole.node]
        if node.kind == "view" and node.attrs["name"] == "_to_copy":
            source = self.casts.get(whole.node)
            before = None if source is None else self.part(source, index)
            if before is None:
                return None
            aval, value = slice_of(whole, index)
            return Held(self.emit("view", (before.node,), aval, value, name="_to_copy"), aval, value)
        if node.kind != "parameter":
            return None
        key = whole.node, index
        if key not in self.parts:
            aval, value = slice_of(whole, index)
            home = self.homes[whole.node] or ()
            place = self.stacks.get(whole.node)
            home = home if place is None else (*home[:place], str(index), *home[place:])
            names = tuple(f"{name}[{index}]" for name in node.attrs["names"])
            self.parts[key] = Held(self.emit("parameter", (), aval, value, home, names=names), aval, value)
            if place is not None:
                self.stacks[self.parts[key].node] = place + 1
        return self.parts[key]

    # ---- the end

    def called(self) -> tuple[tuple[Node, ...], tuple[Call, ...]]:
        """The nodes with their module calls, and these."""
        labels = filled(self._labels, self._floors)
        inside = [given and node.kind not in LEAVES for given, node in zip(self._given, self.nodes, strict=True)]
        made, places = calls(labels, inside)
        nodes = tuple(
            Node(one.kind, one.inputs, one.shape, one.dtype, place, one.attrs)
            for one, place in zip(self.nodes, places, strict=True)
        )
        return nodes, made

    def _label(self, home: Label | None) -> Label | None:
        """Where a node happens, as far as it says so itself."""
        if home is not None and home[: len(self.scope)] == self.scope:
            return home
        return self.scope or None


def slice_of(whole: Held, index: int) -> tuple[Any, Any]:
    """Shape and value of one slice along the first axis."""
    aval = shaped(tuple(whole.aval.shape[1:]), whole.aval.dtype)
    if whole.value is None:
        return aval, None
    if jnp.issubdtype(whole.aval.dtype, jax.dtypes.extended):
        return aval, whole.value[index]
    part = plain(whole.value)[index]
    return aval, part if isinstance(part, jax.core.Tracer) else np.asarray(part)


def plain(value: Any) -> Any:
    """A value as an array of NumPy, unless it is traced."""
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def _is_real(dtype: Any) -> bool:
    return not jnp.issubdtype(dtype, jax.dtypes.extended) and not jnp.issubdtype(dtype, np.complexfloating)


def _kept(value: Any) -> NDArray[Any]:
    assert value is not None
    array = np.asarray(value)
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag], axis=-1).astype(np.float64)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, np.floating) else array
