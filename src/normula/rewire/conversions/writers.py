"""Here live the parameters that write to the stream: what its values are sums of: matrices, biases, tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from normula.rewire.conversions.model import Model


@dataclass(slots=True)
class Writers:
    """What values are sums of.

    Args:
        model: that computes them.
        ends: the nodes of the values.
        stop: nodes that are not looked into.

    Attributes:
        nodes: the sums and what they are made of.
        axes: for the node of each parameter that is written, the axis of it that is the stream's features.
        problem: what is in a sum and is no product with a matrix, bias or table; empty where all is.
    """

    model: Model
    ends: Iterable[int]
    stop: frozenset[int] = frozenset()
    nodes: set[int] = field(default_factory=set)
    axes: dict[int, int] = field(default_factory=dict)
    problem: str = ""

    def __post_init__(self) -> None:
        stack = list(self.ends)
        while stack and not self.problem:
            node = stack.pop()
            if node not in self.nodes and node not in self.stop:
                self.nodes.add(node)
                stack += self._terms(node)

    def others(self) -> str:
        """What else uses a parameter that is written, in words; empty where nothing does."""
        for parameter in self.axes:
            for user in self.model.others(parameter, self.nodes):
                return f"{self.model.graph[parameter].attrs['names'][0]} is used by {self.model.where(user)} too"
        return ""

    def _terms(self, node: int) -> tuple[int, ...]:
        graph = self.model.graph
        inputs = graph.inputs(node)
        match graph.kind(node):
            case "view" | "gather" | "neg":
                return inputs[:1]
            case "add" | "sub" | "join":
                return inputs
            case "mul" | "div":
                return self._factor(node)
            case "parameter":
                self.axes[node] = len(graph[node].shape) - 1
                return ()
            case "lookup" if self._write(inputs[0], -1):
                return ()
            case "matmul" if len(inputs) > 1 and self._matrix(inputs[1]):
                return inputs[2:]
            case "conv" if self._write(inputs[1], 0):
                return inputs[2:]
        if graph.number(node) != 0.0:
            self.problem = f"{self.model.where(node)} goes into it"
        return ()

    def _factor(self, node: int) -> tuple[int, ...]:
        """A product is a multiple where all factors but one are single numbers."""
        graph = self.model.graph
        inputs = graph.inputs(node)
        flowing = [one for one in inputs if graph[one].size > 1]
        is_multiple = len(flowing) == 1 and (graph.kind(node) == "mul" or flowing[0] == inputs[0])
        if is_multiple and all(one == flowing[0] or graph.is_constant(one) for one in inputs):
            return (flowing[0],)
        factor = next((name for one in inputs if graph.is_gain(one) for name in graph.parameters(one)), "")
        self.problem = (
            f"what is multiplied by {factor}, for each feature another number, goes into it"
            if factor
            else f"{self.model.where(node)} goes into it"
        )
        return ()

    def _matrix(self, node: int) -> bool:
        found = self.model.parameter(node)
        if found is None or len(self.model.graph[found[0]].shape) != 2:
            return False
        self.axes[found[0]] = 0 if found[1] else 1
        return True

    def _write(self, node: int, axis: int) -> bool:
        found = self.model.parameter(node)
        if found is None:
            return False
        self.axes[found[0]] = axis % len(self.model.graph[found[0]].shape)
        return True
