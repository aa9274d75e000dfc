"""Layers that carry several streams: what goes from one to the next is a tuple of values.

    x, d  ->  b = f(x); d = d + b; x = norm(x + b)

A layer is what makes the next tuple from the last. A value that goes into every layer and is never changed, such as
the embedding that is mixed in again, is a stream too, if a sum reads it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from normula.read.branch import Branches
from normula.read.chain import Event
from normula.read.edges import embed_norms, final_norms
from normula.read.expression import Applied, Expression, Stream, Total, Unknown, parts, streams, walk, with_parts
from normula.read.found import ReadChain, ReadLayer
from normula.read.graph import Graph
from normula.read.layers import Layer, Layers
from normula.read.rows import Cut, Row, cuts, rows
from normula.read.spell import Spelling
from normula.read.stream import Residual, sums_of
from normula.read.strip import step_down
from normula.record.reading import UNKNOWN

MOST: Final = 4
"""How many streams a layer may carry."""

CHANGED: Final = ("d", "e", "p", "q")
UNCHANGED: Final = ("y", "z", "w", "u")
"""What streams beside x are called: those that a layer changes, and those that it only reads."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What a layer does: the sums that the new values are made of, and these."""

    sums: tuple[Event, ...]
    ends: tuple[Event, ...]

    def events(self, start: int, last: int) -> tuple[Event, ...]:
        """All that happens from one value of x to the next; a value that is handed on unchanged is no event."""
        others = [event for event in self.ends if event.value != Stream(event.node) and event.node != last]
        ends = [*others, *(event for event in self.ends if event.value != Stream(last) and event.node == last)]
        before = [start, *(event.node for event in self.sums)]
        bases = [*before, *before[-1:] * len(ends)]
        return tuple(replace(event, base=base) for event, base in zip((*self.sums, *ends), bases, strict=False))


def several(graph: Graph, sums: Mapping[int, Residual]) -> list[ReadChain]:
    """All streams of a program whose layers stand in rows; none where one is not understood, or all carry only x."""
    found: list[ReadChain] = []
    for row in rows(graph):
        read = _read(graph, sums, row)
        if read is None:
            return []
        if _adds(read):
            found.append(read)
    return found if any(one.begins for one in found) else []


def _adds(one: ReadChain) -> bool:
    """Whether a sum is made in a row of layers; two linear maps one after another are no stream."""
    values = [event.value for layer in one.layers for event in layer.layer.events]
    return any(isinstance(part, Total) for value in values for part in walk(value))


def _read(graph: Graph, sums: Mapping[int, Residual], row: Row) -> ReadChain | None:
    """The streams of a row, by the cut that makes its layers most alike."""
    found = [read for cut in cuts(graph, row) if (read := _Reader(graph, sums, row, cut).chain()) is not None]
    return min(found, key=lambda one: len({layer.text for layer in one.layers}), default=None)


class _Reader:
    """Reads a row that is cut into layers.

    Args:
        graph: the program.
        sums: its residual sums.
        row, cut: the layers.
    """

    def __init__(self, graph: Graph, sums: Mapping[int, Residual], row: Row, cut: Cut) -> None:
        self.graph, self.sums, self.row, self.cut = graph, sums, row, cut
        whole = sums_of(graph, {node for live in cut.live for node in live})
        order = list(whole)
        places = [*(bisect_right(order, end) for end in cut.ends), len(order)]
        self.inside = [{node: whole[node] for node in order[first:last]} for first, last in pairwise(places)]
        self.fixed = [node for node in cut.fixed if self._is_added(node)]

    def chain(self) -> ReadChain | None:
        """The streams; None where a layer is not understood."""
        count = len(self.cut.live[1])
        alike = all(len(one) == count for one in self.cut.live[1:-1]) and len(self.cut.live[-1]) <= count
        if not (self.cut.live[0] or self.fixed) or not alike or not 1 <= count <= MOST - len(self.fixed):
            return None
        known: list[_Step] = []
        for place in range(len(self.row.layers)):
            if (step := self._step(place)) is None:
                return None
            known.append(step)
        names = self._names(known[1])
        first = self._first(known[0], known[1])
        if first is None:
            return None
        known[0], begins = first
        starts = [dict(zip(names, (*nodes, *self.fixed), strict=True)) for nodes in (begins, *self.cut.live[1:-1])]
        layers = [self._layer(place, step, starts[place], names) for place, step in enumerate(known)]
        if any(layer.text == UNKNOWN for layer in layers):
            return None
        return self._closed(layers, names)

    # ---- one layer

    def _step(self, place: int) -> _Step | None:
        """What a layer does; None where it is not understood."""
        graph, cut = self.graph, self.cut
        events = self._added(place, sorted({*cut.live[place], *self.fixed}))
        known = sorted({*cut.live[place], *self.fixed, *(event.node for event in events)})
        ends: list[Event] = []
        for node in cut.live[place + 1]:
            value = Branches(graph, known, self.sums).read(node)
            if not self._is_understood(value, known, cut.ends[place]):
                return None
            ends.append(Event(node, known[0], value, False))
        return _Step(_needed(events, ends), tuple(ends)) if ends else None

    def _added(self, place: int, known: list[int]) -> list[Event]:
        """The sums of a layer that carry streams, or such sums; those after the last layer come last."""
        events: list[Event] = []
        for node, terms in self.inside[place].items():
            if any(self._carried(term.node, known) is not None for term in terms):
                value = Branches(self.graph, known, self.sums).sum(node, terms)
                if isinstance(value, Total) and self._is_understood(value, known, self.cut.ends[place]):
                    events.append(Event(node, known[0], value, True))
                    known = sorted((*known, node))
        return events

    def _is_understood(self, value: Expression, known: Sequence[int], since: int) -> bool:
        """Whether nothing is unknown, and no sublayer reads a stream beside the value that it is said to read."""
        return all(
            not isinstance(part, Unknown) and (not isinstance(part, Applied) or self._is_closed(part, known, since))
            for part in walk(value)
        )

    def _is_closed(self, applied: Applied, known: Sequence[int], since: int) -> bool:
        inside = {applied.entry, *applied.nodes}
        beside = [one for node in applied.nodes for one in self.graph.inputs(node) if one not in inside]
        return not self._made_of(beside, known, since) and self._made_of([applied.entry], known, since) <= {
            *streams(applied.value)
        }

    def _made_of(self, nodes: Sequence[int], known: Sequence[int], since: int) -> set[int]:
        """The known values that others are made of in a layer."""
        found: set[int] = set()
        stack, seen = [*nodes], {*nodes}
        while stack:
            node = stack.pop()
            if node in known:
                found.add(node)
                continue
            for before in self.graph.inputs(node) if node > since else ():
                if before not in seen:
                    seen.add(before)
                    stack.append(before)
        return found

    def _carried(self, node: int, known: Sequence[int]) -> int | None:
        """The value of a stream that a term carries, if it is nothing but that, scaled or normed."""
        while node not in known:
            step = step_down(self.graph, node)
            if step is None or step.how == "batchnorm" or step.below < known[0]:
                return None
            node = step.below
        return node

    def _is_added(self, node: int) -> bool:
        """Whether a value is added to a stream in some layer, not only inside sublayers."""
        for inside, live in zip(self.inside, self.cut.live, strict=True):
            others = {*live, *self.cut.fixed, *inside} - {node}
            for terms in inside.values():
                carried = [self._carried(term.node, sorted({node, *others})) for term in terms]
                if node in carried and any(one in others for one in carried):
                    return True
        return False

    # ---- the streams

    def _names(self, step: _Step) -> list[str]:
        """What the streams are called: x is the one that sublayers read, the last to be made of several."""
        live = self.cut.live[1]
        made = {event.node: streams(event.value) for event in step.sums}
        read = {
            node
            for event in (*step.sums, *step.ends)
            for part in walk(event.value)
            if isinstance(part, Applied)
            for node in _origins(streams(part.value), made)
        }
        main = max((node for node in live if node in read), default=live[-1])
        others = iter(CHANGED)
        return ["x" if node == main else next(others) for node in live] + list(UNCHANGED[: len(self.fixed)])

    def _first(self, step: _Step, second: _Step) -> tuple[_Step, tuple[int, ...]] | None:
        """The first layer with its streams told apart, which may start as one value, and what they start as."""
        live = self.cut.live
        roles = {node: -2 - place for place, node in enumerate((*live[1], *self.fixed))}
        starts: dict[int, int] = {}
        same: dict[int, int] = {**roles}
        if [len(step.sums), len(step.ends)] != [len(second.sums), len(second.ends)]:
            return None
        told: list[Event] = []
        for event, other in zip((*step.sums, *step.ends), (*second.sums, *second.ends), strict=True):
            value = _aligned(event.value, other.value, same, starts)
            if value is None:
                return None
            told.append(Event(event.node, event.base, value, event.is_sum))
            same.setdefault(other.node, event.node)
        begins = [starts.get(roles[node]) for node in live[1]]
        if any(node is None for node in begins):
            return None
        count = len(step.sums)
        return _Step(tuple(told[:count]), tuple(told[count:])), tuple(node for node in begins if node is not None)

    def _layer(self, place: int, step: _Step, starts: Mapping[str, int], names: Sequence[str]) -> ReadLayer:
        nodes = [-2 - at for at in range(len(names))] if place == 0 else list(starts.values())
        ends = dict(zip(names, self.cut.live[place + 1], strict=False))
        if len(self.cut.live[place + 1]) < len(self.cut.live[1]):  # after the last layer only x is read
            ends = {"x": self.cut.live[place + 1][-1]}
        events = step.events(starts["x"], ends["x"])
        spelling = Spelling(self.graph, events, dict(zip(nodes, names, strict=True)), ends)
        path = self.row.paths[place]
        layer = Layer(events, path, self._call(events, path))
        return ReadLayer(layer, spelling, spelling.text, spelling.seen, starts=starts, ends=ends)

    def _call(self, events: Sequence[Event], path: str) -> int:
        calls = self.graph.program.calls
        return next((call for call in self.graph.calls(events[-1].node) if calls[call].path == path), -1)

    # ---- before and after

    def _closed(self, layers: list[ReadLayer], names: Sequence[str]) -> ReadChain:
        """The streams with what they start as and how they end."""
        last = layers[-1]
        ends = {**last.ends, **{name: node for name, node in last.starts.items() if node in self.fixed}}
        closing = self._closing(ends)
        after = closing.layer.events if closing is not None else ()
        cut = Layers((), tuple(layer.layer for layer in layers), after)
        starts = layers[0].starts
        begins = {name: self._begin(starts["x"], starts[name]) for name in names if name != "x"}
        embed = embed_norms(self.graph, self._entered(cut, starts["x"]))
        return ReadChain(
            cut, layers, embed, final_norms(self.graph, cut), begins=begins, closing=closing if begins else None
        )

    def _entered(self, cut: Layers, start: int) -> Layers:
        """The layers, the first with an event from the value that x starts as."""
        first, *others = cut.layers
        events = (Event(first.events[0].node, start, Stream(start), True), *first.events)
        return Layers(cut.before, (Layer(events, first.path, first.call), *others), cut.after)

    def _begin(self, main: int, other: int) -> str:
        """What a stream starts as, as a formula of what x starts as; empty where it is none."""
        value = Branches(self.graph, [main], self.sums).read(other)
        if any(isinstance(part, Applied | Unknown) for part in walk(value)):
            return ""
        text = Spelling(self.graph, [Event(other, main, value, False)]).text
        return "" if text == UNKNOWN else text

    def _closing(self, ends: Mapping[str, int]) -> ReadLayer | None:
        """What comes out after the last layer, before any head: a formula of all streams that are left."""
        sums = self._added(len(self.row.layers), sorted({*ends.values()}))
        known = sorted({*ends.values(), *(event.node for event in sums)})
        reader = Branches(self.graph, known, self.sums)
        for output in self.graph.program.outputs:
            if not any(self.graph.between(one, output) for one in known):
                continue
            node, value = output, reader.read(output)
            while isinstance(value, Applied):
                node, value = value.entry, value.value
            if isinstance(value, Stream):
                node = value.node
            last = Event(node, ends["x"], value, False)
            events = _Step(_needed(sums, [last]), (last,)).events(ends["x"], node)
            if any(isinstance(part, Applied | Unknown) for event in events for part in walk(event.value)):
                continue
            names = {one: name for name, one in ends.items()}
            spelling = Spelling(self.graph, events, names, {"x": node})
            if spelling.text != UNKNOWN:
                return ReadLayer(Layer(events, ""), spelling, spelling.text, "", starts=ends, ends={"x": node})
        return None


def _needed(events: Sequence[Event], ends: Sequence[Event]) -> tuple[Event, ...]:
    """The sums that the new values are made of."""
    read = {node for event in ends for node in (event.node, *streams(event.value))}
    found: list[Event] = []
    for event in reversed(events):
        if event.node in read:
            read |= {*streams(event.value)}
            found.append(event)
    return tuple(reversed(found))


def _origins(nodes: Iterable[int], made: Mapping[int, Sequence[int]]) -> set[int]:
    """The values that nodes are made of, through sums."""
    found: set[int] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += made.get(node, ())
    return found


def _aligned(
    value: Expression, other: Expression, same: Mapping[int, int], starts: dict[int, int]
) -> Expression | None:
    """An expression with its streams as they stand in another of the same make; None where it is of another make.

    Args:
        value: of the first layer.
        other: of the second.
        same: what each node of the second layer is in the first; below -1 for a stream as it enters.
        starts: the nodes that the streams enter the first layer as; those that are found here are written into it.
    """
    if isinstance(value, Stream) and isinstance(other, Stream):
        node = same.get(other.node)
        here = None if node is None else node if node >= 0 else starts.setdefault(node, value.node)
        return Stream(node) if node is not None and here == value.node else None
    if type(value) is not type(other) or len(parts(value)) != len(parts(other)):
        return None
    inside = [_aligned(one, two, same, starts) for one, two in zip(parts(value), parts(other), strict=True)]
    found = [part for part in inside if part is not None]
    return with_parts(value, found) if len(found) == len(inside) else None
