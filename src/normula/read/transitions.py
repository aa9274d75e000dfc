"""What happens between one chain of residual sums and the next: the stream goes on without a skip.

A patch merging, a strided convolution or a projection leads to the next stage and is no part of a layer. Between two
layers of one list it is: `x = conv(x)`. Attention or a whole convolutional block without a skip is a step too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from normula.read.branch import Branches
from normula.read.chain import Chain, Event, nodes_of
from normula.read.expression import Applied, Normed, Stream, Unknown, streams, walk
from normula.read.graph import Graph
from normula.read.layers import Layers, layers
from normula.read.openings import opened
from normula.read.stream import Residual
from normula.read.strip import step_down
from normula.read.sublayers import is_complete

MOST = 3
"""How many sublayers a layer may have around a step without a skip; what holds more is a stage."""


def connected(graph: Graph, found: Sequence[Chain], sums: Mapping[int, Residual], skips: frozenset[int]) -> list[Chain]:
    """The chains: those joined that are layers of one list, and each with the steps without a skip that lead to it."""
    result: list[Chain] = []
    for one in found:
        chain = opened(graph, one, found, sums)
        place = _source(graph, result, chain)
        if place is None:
            result.append(chain)
            continue
        before = result[place]
        neighbours = before is result[-1] and (
            (chain is one and _is_arithmetic(graph, before.last, chain.start))
            or _is_inside(graph, before, chain)
            or _are_neighbours(layers(graph, before), layers(graph, chain))
        )
        step = _around(graph, before, _step(graph, before, chain, sums, behind=neighbours))
        if neighbours:
            steps = (step,) if step.value != Stream(before.last) else ()
            result[-1] = Chain(
                before.start, before.before, (*before.events, *steps, *chain.before, *chain.events), chain.after
            )
            continue
        if _is_step(graph, step, skips) and not _is_resampling(graph, step, _path(graph, chain)):
            chain = Chain(step.base, (step, *chain.before), chain.events, chain.after)
        inside = {part.norm for event in chain.before for part in walk(event.value) if isinstance(part, Normed)}
        result[place] = replace(before, after=tuple(event for event in before.after if event.node not in inside))
        result.append(chain)
    return [part for chain in result for part in _parted(graph, chain)]


def _parted(graph: Graph, chain: Chain) -> list[Chain]:
    """A chain, divided where a norm of its own stands between the last layer of one list and the first of another."""
    cut = layers(graph, chain).layers
    for one, other in pairwise(cut):
        last = one.events[-1]
        apart = one.path.rpartition(".")[0] != other.path.rpartition(".")[0]
        if apart and isinstance(last.value, Normed) and not last.is_sum and one.call not in graph.calls(last.node):
            place = chain.events.index(last)
            first = Chain(chain.start, chain.before, chain.events[:place], (last,))
            return [first, *_parted(graph, Chain(last.node, (), chain.events[place + 1 :], chain.after))]
    return [chain]


def _path(graph: Graph, chain: Chain) -> str:
    return layers(graph, chain).layers[0].path


def _around(graph: Graph, before: Chain, step: Event) -> Event:
    """A step; unknown where it joins what comes from another value of the stream, which goes around a sublayer."""
    earlier = [before.start, *(event.node for event in before.events[:-1])]
    way = graph.between(step.base, step.node)
    for node in way:
        if graph.kind(node) == "join":
            for part in graph.inputs(node):
                if part not in way and any(one < part and _leads(graph, part, one) for one in earlier):
                    return replace(step, value=Unknown(node, "a part of the stream that goes around a sublayer"))
    return step


def _leads(graph: Graph, node: int, start: int) -> bool:
    """Whether a value is another layout of one, or of a part of it."""
    while node > start and (step := step_down(graph, node)) is not None:
        node = step.below
    return node == start


def _step(graph: Graph, before: Chain, chain: Chain, sums: Mapping[int, Residual], *, behind: bool) -> Event:
    """How a chain's first value comes from the last of the one before: from its last norm where that is on the way."""
    start = chain.start
    call = layers(graph, chain).layers[0].call
    outside = [event.node for event in before.after if event.node < start and call not in graph.calls(event.node)]
    known = [before.last, *(outside if not behind else ())]
    while len(known) > 1:
        value = Branches(graph, known, sums).read(start)
        if streams(value) == (known[-1],):
            return Event(start, known[-1], value, False)
        known.pop()
    return Event(start, before.last, Branches(graph, known, sums).read(start), False)


def _source(graph: Graph, earlier: Sequence[Chain], chain: Chain) -> int | None:
    """The place of the chain that a chain goes on from, if any."""
    if _is_embedded(graph, chain.start):
        return None
    places = sorted(range(len(earlier)), key=lambda place: -earlier[place].last)
    return next(
        (
            place
            for place in places
            if earlier[place].last <= chain.start and graph.between(earlier[place].last, chain.start)
        ),
        None,
    )


def _is_embedded(graph: Graph, start: int) -> bool:
    """Whether a stream starts from embeddings of its own, into which something else is only written."""
    if graph.kind(start) not in ("join", "write"):
        return False
    for one in graph.inputs(start):
        while (step := step_down(graph, one)) is not None and step.how in ("view", "number", "shift"):
            one = step.below
        if graph.kind(one) == "lookup" and graph.given[one]:
            return True
    return False


def _is_inside(graph: Graph, before: Chain, chain: Chain) -> bool:
    """Whether a stream is replaced between two sums of one layer."""
    first = next(event for event in chain.events if event.is_sum)
    scopes = [graph.calls(node) for node in (before.last, chain.start, first.node)]
    shared = [call for call in scopes[0] if all(call in scope for scope in scopes)][-1]
    held = [event for event in (*before.events, *chain.events) if event.is_sum and shared in graph.calls(event.node)]
    return len(held) <= MOST and graph.program.calls[shared].path.rpartition(".")[2].isdigit()


def _is_arithmetic(graph: Graph, last: int, start: int) -> bool:
    """Whether there is only arithmetic between two sums of a stream: its size is the same, and no matrix is between."""
    way = graph.between(last, start)
    return graph[last].size == graph[start].size and not any(graph.is_mixing(node) for node in way)


def _are_neighbours(before: Layers, after: Layers) -> bool:
    """Whether the last layer of one chain and the first of another stand side by side in one list."""
    (row, _, last), (other, _, first) = before.layers[-1].path.rpartition("."), after.layers[0].path.rpartition(".")
    return row == other and last.isdigit() and first.isdigit() and int(first) == int(last) + 1


def _is_resampling(graph: Graph, step: Event, layer: str) -> bool:
    """Whether a step leads to another stage: convolutions that change how many places there are, in no layer's list."""
    applied = [part for part in walk(step.value) if isinstance(part, Applied)]
    nodes = [one for part in applied for one in part.nodes if graph.kind(one) == "conv"]
    resized = any(graph[one].shape[2:] != graph[graph.inputs(one)[0]].shape[2:] for one in nodes)
    return resized and {part.kind for part in applied} == {"conv"} and not stands_beside(graph, step, layer)


def stands_beside(graph: Graph, step: Event, layer: str) -> bool:
    """Whether a step is a block of its own in the list that a layer stands in."""
    row, _, index = layer.rpartition(".")
    calls = {call for node in nodes_of(graph, step) for call in graph.calls(node)}
    shared = [call for call in calls if all(call in graph.calls(node) for node in nodes_of(graph, step))]
    paths = [graph.program.calls[call].path.rpartition(".") for call in shared]
    return index.isdigit() and any(place.isdigit() and one == row for one, _, place in paths)


def _is_step(graph: Graph, step: Event, skips: frozenset[int]) -> bool:
    """Whether what happens without a skip is more than a change of layout: attention, or a whole block."""
    if any(isinstance(part, Applied) and part.kind in ("attn", "cross", "moe", "ssm") for part in walk(step.value)):
        return True
    way = graph.between(step.base, step.node)[1:]
    if any(graph.kind(node) == "matmul" and graph.is_product(node) for node in way) and any(
        graph.kind(node) == "pointwise" for node in way
    ):
        return True
    unknown = any(isinstance(part, Unknown) for part in walk(step.value))
    if unknown and skips.isdisjoint(way) and graph[step.base].size == graph[step.node].size:
        return True
    return is_complete(graph, way)
