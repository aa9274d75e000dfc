"""What layers do as they are, as the straight line of instructions that a rewiring writes of a wanted formula."""

from __future__ import annotations

from collections.abc import Sequence

from normula.read.expression import Applied, Expression, Gained, Normed, Scaled, Stopped, Stream, Total, walk
from normula.read.found import ReadLayer
from normula.read.graph import Graph
from normula.rewire.anatomy import runs_at
from normula.rewire.errors import RewireError
from normula.rewire.operation import below
from normula.rewire.straight import Line, Value


def retraced(graph: Graph, layers: Sequence[ReadLayer], path: str) -> Line:
    """The line of some layers that one module runs, from what was read of them.

    Args:
        graph: of the model.
        layers: that the module runs, in order.
        path: of the module.

    Raises:
        RewireError: a norm or a learned factor is not in the module.
    """
    line = Line()
    first = 0
    for layer in layers:
        retracing = _Retracing(line, graph, path, layer, first)
        retracing.run()
        first += len(retracing.numbers)
    return line


class _Retracing:
    """One layer; what it computes once is written once, however often it is read."""

    def __init__(self, line: Line, graph: Graph, path: str, layer: ReadLayer, first: int) -> None:
        self.line, self.graph, self.path, self.layer = line, graph, path, layer
        every = (part for event in layer.layer.events for part in walk(event.value))
        when = {runs_at(graph, one): one.ends[0] for one in every if isinstance(one, Applied)}
        self.numbers = {when[node]: first + place for place, node in enumerate(sorted(when))}
        self.streams: dict[int, Value] = {}
        self.made: dict[int, Value] = {}

    def run(self) -> None:
        events = self.layer.layer.events
        self.streams[events[0].base] = self.line.stream
        for event in events:
            if event.root >= 0 and event.base in self.streams:
                self.streams[event.root] = self.streams[event.base]
            self.streams[event.node] = value = self._value(event.value)
            ran = [number for node, number in self.numbers.items() if node in self.made]
            if ran:
                self.line.after[max(ran)] = value.name
        self.line.stream = self.streams[events[-1].node]

    def _value(self, expression: Expression) -> Value:
        match expression:
            case Stream(node=node) if node in self.streams:
                return self.streams[node]
            case Scaled(factor=factor, value=value):
                return factor * self._value(value)
            case Stopped(value=value):
                return self.line.write("stop", self._value(value))
            case Total(terms=(first, *others)):
                total = self._value(first)
                for term in others:
                    total = total + self._value(term)
                return total
            case Gained(node=node):
                return self._once(node, expression)
            case Normed(norm=node):
                return self._once(node, expression)
            case Applied(ends=(node, *_)):
                return self._once(node, expression)
        raise RewireError(
            f"A layer of {self.path or 'the model'} reads a value of an earlier one beside its stream, and a model is "
            "moved where each layer reads its stream alone."
        )

    def _once(self, node: int, expression: Gained | Normed | Applied) -> Value:
        if node not in self.made:
            self.made[node] = self._written(self._value(expression.value), expression)
        return self.made[node]

    def _written(self, value: Value, expression: Gained | Normed | Applied) -> Value:
        match expression:
            case Gained(gain=gain):
                return self.line.write("gain", place=self._parameter(gain)) * value
            case Normed(norm=norm):
                return self.line.write("norm", value, place=below(self.graph.path(norm), self.path))
        number = self.numbers[expression.ends[0]]
        self.line.entries[number] = value.name
        return Value(self.line, f"f{number}")

    def _parameter(self, gain: int) -> str:
        names = self.graph.parameters(gain)
        if len(names) != 1:
            raise RewireError(
                f"A learned factor in {self.path or 'the open'} is made of {len(names)} parameters; a model is moved "
                "where each is a parameter by itself."
            )
        return below(names[0], self.path)
