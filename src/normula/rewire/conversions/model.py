"""Here lives Model: what a conversion asks of a model: its graph, its streams, and a few facts about its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from normula.read.chain import Event
from normula.read.expression import Normed, walk
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.norms import statistics
from normula.read.streams import analysed
from normula.record.conversion import Affine, LinearMap, Vector
from normula.record.program import Program
from normula.record.reading import UNKNOWN
from normula.rewire.errors import RewireError

TRANSPOSED = frozenset(("t", "transpose", "permute", "numpy_T", "mT"))
OUTPUT = -1
"""In place of a node that reads a value: the model returns it."""


class Values(Protocol):
    """Facts about the parameters of a model."""

    def constant(self, vector: Vector | None, empty: float) -> float | None:
        """The one number that a vector holds; `empty` for no vector, None where its numbers differ."""

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two parameters hold the same numbers."""

    def takes_bias(self, path: str) -> bool:
        """Whether a module is a linear map without a bias that can be given one."""

    def size(self, name: str) -> int:
        """How many numbers a parameter has."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read: its graph, its streams, and its values.

    Raises:
        RewireError: it has no stream, or a part of it is not understood.
    """

    graph: Graph
    found: Sequence[ReadChain]
    values: Values
    untie: bool = False

    def __post_init__(self) -> None:
        if not self.found:
            raise RewireError("This model has no residual stream that was found; there is nothing to convert.")
        for one in self.found:
            for number, layer in enumerate(one.layers, start=1):
                if layer.text == UNKNOWN:
                    where = layer.layer.path or "in the open"
                    raise RewireError(
                        f"A model is converted only if all of it is understood, and layer {number} ({where}) is not: "
                        f"{layer.seen}."
                    )

    @property
    def events(self) -> Iterator[Event]:
        """All that happens to the streams, in order."""
        for one in self.found:
            yield from (event for layer in one.layers for event in layer.layer.events)

    def norms(self) -> dict[int, str]:
        """The norms of the streams by their nodes, in order, with their sites."""
        found: dict[int, str] = {}
        for one in self.found:
            found |= dict.fromkeys(one.embed, "embed")
            for layer in one.layers:
                sites = layer.spelling.sites()
                for event in layer.layer.events:
                    for part in walk(event.value):
                        if isinstance(part, Normed):
                            found[part.norm] = sites.get(part.norm, "norm")
            found |= dict.fromkeys(one.final, "final")
        return found

    def affine(self, node: int) -> Affine:
        """A norm.

        Raises:
            RewireError: its gain or bias is made of parameters in a way that is not a parameter or 1 + a parameter.
        """
        graph, attrs = self.graph, self.graph[node].attrs
        inputs = graph.inputs(node)
        vectors = {
            label: self._vector(node, inputs[attrs[label]]) if attrs[label] >= 0 else None for label in ("gain", "bias")
        }
        _, width = statistics(graph[node], graph[inputs[0]].shape)
        return Affine(path=graph.path(node), kind=attrs["name"], eps=float(attrs["eps"]), width=width, **vectors)

    def is_over_features(self, node: int) -> bool:
        """Whether a norm's statistics are those of one token's features."""
        axes, _ = statistics(self.graph[node], self.graph[self.graph.inputs(node)[0]].shape)
        return tuple(axes) == (-1,)

    def source(self, node: int) -> int:
        """The node that a node's first input is a view of."""
        return self.under_views(self.graph.inputs(node)[0])

    def under_views(self, node: int) -> int:
        while self.graph.kind(node) == "view":
            node = self.graph.inputs(node)[0]
        return node

    def readers(self, node: int) -> Iterator[tuple[int, int]]:
        """What computes with a value: the node, or OUTPUT, and the view of the value that it reads."""
        stack, seen = [node], {node}
        outputs = frozenset(self.graph.program.outputs)
        while stack:
            one = stack.pop()
            if one in outputs:
                yield OUTPUT, one
            for user in self.graph.users[one]:
                looks = self.graph.kind(user) in ("view", "gather") and self.graph.inputs(user)[0] == one
                if not looks:
                    yield user, one
                elif user not in seen:
                    seen.add(user)
                    stack.append(user)

    def map_of(self, user: int, view: int, width: int) -> LinearMap | str:
        """The linear map that reads a value, or why what reads it is none with a matrix of its own."""
        graph = self.graph
        where = "the model returns it" if user == OUTPUT else f"it is read by {self.where(user)}"
        if user == OUTPUT or graph.kind(user) != "matmul" or graph[view].shape[-1:] != (width,):
            return where
        inputs = graph.inputs(user)
        found = self.parameter(inputs[1]) if len(inputs) > 1 and inputs[0] == view else None
        if found is None or len(graph[found[0]].shape) != 2:
            return f"{where}, whose matrix is no plain parameter"
        weight, transposed = found
        bias = self._bias(user)
        if bias is None:
            return f"{where}, whose bias is no plain parameter"
        return LinearMap(weight=self.name(weight, user), axis=int(transposed), bias=bias, path=graph.path(user))

    def _bias(self, product: int) -> str | None:
        """The bias of a product, within it or added next; empty for none, None if it is no plain parameter."""
        inputs = self.graph.inputs(product)
        if len(inputs) > 2:
            added = self.parameter(inputs[2])
            return None if added is None else self.name(added[0], product)
        after = list(self.readers(product))
        if len(after) == 1 and after[0][0] != OUTPUT and self.graph.kind(after[0][0]) == "add":
            user, view = after[0]
            others = [self.parameter(one) for one in self.graph.inputs(user) if one != view]
            if len(others) == 1 and others[0] is not None and len(self.graph[others[0][0]].shape) == 1:
                return self.name(others[0][0], user)
        return ""

    def parameter(self, node: int) -> tuple[int, bool] | None:
        """The parameter that a node is a view of, and whether it is transposed."""
        transposed = False
        while self.graph.kind(node) == "view":
            transposed ^= self.graph[node].attrs.get("name") in TRANSPOSED
            node = self.graph.inputs(node)[0]
        return (node, transposed) if self.graph.kind(node) == "parameter" else None

    def name(self, parameter: int, user: int) -> str:
        """The name of a parameter; of a tied one that in the module where it is used."""
        names: tuple[str, ...] = self.graph[parameter].attrs["names"]
        path = f"{self.graph.path(user)}."
        return next((one for one in names if one.startswith(path)), names[0])

    def matrix(self, product: int) -> int:
        """The parameter that a linear map multiplies by."""
        found = self.parameter(self.graph.inputs(product)[1])
        assert found is not None
        return found[0]

    def others(self, parameter: int, known: set[int]) -> list[int]:
        """What uses a parameter beside some nodes."""
        return [user for user, _ in self.readers(parameter) if user not in known]

    def where(self, node: int) -> str:
        """A node in words."""
        return f"{WORDS.get(self.graph.kind(node), self.graph.kind(node))} in {self.graph.path(node) or 'the model'}"

    def _vector(self, node: int, number: int) -> Vector:
        graph = self.graph
        plain = self.parameter(number)
        if plain is not None:
            return Vector(name=self.name(plain[0], node))
        number = self.under_views(number)
        if graph.kind(number) == "add" and len(graph.inputs(number)) == 2:
            one, other = graph.inputs(number)
            for constant, learned in ((one, other), (other, one)):
                offset, plain = graph.number(self.under_views(constant)), self.parameter(learned)
                if offset is not None and plain is not None:
                    return Vector(name=self.name(plain[0], node), offset=offset)
        raise RewireError(f"The gain or bias of the norm {graph.path(node)} is no parameter, nor 1 plus one.")


WORDS = {
    "add": "a sum",
    "sub": "a difference",
    "mul": "a product",
    "norm": "a norm",
    "matmul": "a product of matrices",
    "conv": "a convolution",
    "lookup": "a look-up of rows",
    "pointwise": "a nonlinearity",
    "join": "a concatenation",
}


def model_of(program: Program, values: Values, *, untie: bool = False) -> Model:
    """A model from what one pass of it computed."""
    return Model(*analysed(program), values, untie)
