"""What a value is before it is laid out anew, scaled, shifted by a constant or normed: one step down at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from normula.read.graph import Graph
from normula.read.norms import is_norm

How: TypeAlias = Literal["view", "stop", "number", "gain", "norm", "shift", "batchnorm"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step down from a value.

    Attributes:
        how: what was done to the value below to get the one above.
        below: the node it was done to.
        factor: of a `number`.
        node: the learned factor of a `gain`, the constant of a `shift`, the norm itself.
    """

    how: How
    below: int
    factor: float = 1.0
    node: int = -1


def step_down(graph: Graph, number: int) -> Step | None:
    """The step below a node; None where something else happens."""
    node = graph[number]
    inputs = node.inputs
    match node.kind:
        case "view" if node.attrs.get("name") == "detach":
            return Step("stop", inputs[0])
        case "view" | "gather":
            return Step("view", inputs[0])
        case "neg":
            return Step("number", inputs[0], -1.0)
        case "norm" if is_norm(graph, number):
            return Step("norm", inputs[0], node=number)
        case "batchnorm":
            return Step("batchnorm", inputs[0])
        case "mul" if len(inputs) == 2:
            return _scaled(graph, *inputs) or _scaled(graph, *inputs[::-1])
        case "div" if len(inputs) == 2:
            if (divisor := graph.number(inputs[1])) is not None and divisor != 0:
                return Step("number", inputs[0], 1 / divisor)
            if graph.is_gain(inputs[1]):
                return Step("gain", inputs[0], node=inputs[1])
        case "add" | "sub" if len(inputs) == 2:
            left, right = inputs
            if graph.is_constant(right) and not graph.is_constant(left):
                return Step("shift", left, node=right)
            if graph.is_constant(left) and not graph.is_constant(right):
                return Step("shift", right, -1.0 if node.kind == "sub" else 1.0, node=left)
        case "join" | "write":
            if (main := _main_part(graph, number)) is not None:
                return Step("view", main)
    return None


def _scaled(graph: Graph, value: int, factor: int) -> Step | None:
    """A value times a number, a learned factor or a mask."""
    if (number := graph.number(factor)) is not None:
        return Step("number", value, number)
    if graph.number(value) is not None or graph.is_weight(value):
        return None
    if graph.is_gain(factor):
        return Step("gain", value, node=factor)
    shape = graph[factor].shape
    if graph.unlearned[factor] and not graph.unlearned[value] and graph[factor].size > 1 and shape[-1] == 1:
        return Step("view", value)
    return None


def _main_part(graph: Graph, number: int) -> int | None:
    """The one part of a joined value that flows; the others are constants, or parts of a value that it carries on."""
    node = graph[number]
    parts = [one for one in dict.fromkeys(node.inputs) if not graph.is_constant(one)]
    if node.kind == "write" and node.attrs.get("adds"):
        return None
    if len(parts) == 1:
        return parts[0]
    if 1 < len(parts) <= 3:
        for one in sorted(parts, reverse=True):
            lineage = {one, *_lineage(graph, one)}
            if all(lineage & set(_layouts(graph, other)) for other in parts if other != one):
                return one
    return None


def _layouts(graph: Graph, number: int) -> list[int]:
    """A value and those that it is another layout of."""
    found = [number]
    while graph.kind(number) in ("view", "gather"):
        number = graph.inputs(number)[0]
        found.append(number)
    return found


def _lineage(graph: Graph, number: int) -> set[int]:
    """The values that a sum is another layout of, and those that are terms of it."""
    found = _layouts(graph, number)
    last = found[-1]
    if graph.kind(last) not in ("add", "sub"):
        return set()
    return {one for term in graph.inputs(last) for one in _layouts(graph, term)}
