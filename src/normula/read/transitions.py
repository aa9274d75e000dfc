"""What happens between one chain of residual sums and the next: the stream goes on without a skip.

A patch merging, a strided convolution or a projection leads to the next stage and is no part of a layer. Between two
layers of one list it is: `x = conv(x)`. Attention or a whole convolutional block without a skip is a step too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from normula.read.branch import Branches
from normula.read.chain import Chain, Event
from normula.read.expression import Applied, Normed, Unknown, streams, walk
from normula.read.graph import Graph
from normula.read.layers import Layers, layers
from normula.read.stream import Residual
from normula.read.sublayers import is_complete

MOST = 3
"""How many sublayers a layer may have around a step without a skip; what holds more is a stage."""


def connected(graph: Graph, found: Sequence[Chain], sums: Mapping[int, Residual], skips: frozenset[int]) -> list[Chain]:
    """The chains: those joined that are layers of one list, and each with the steps without a skip that lead to it."""
    result: list[Chain] = []
    for chain in found:
        place = _source(graph, result, chain)
        if place is None:
            result.append(chain)
            continue
        before = result[place]
        neighbours = before is result[-1] and (
            _is_arithmetic(graph, before.last, chain.start)
            or _is_inside(graph, before, chain)
            or _are_neighbours(layers(graph, before), layers(graph, chain))
        )
        step = _step(graph, before, chain, sums, behind=neighbours)
        if neighbours:
            result[-1] = Chain(
                before.start, before.before, (*before.events, step, *chain.before, *chain.events), chain.after
            )
        elif _is_step(graph, step, skips):
            inside = {part.norm for part in walk(step.value) if isinstance(part, Normed)}
            after = tuple(event for event in before.after if event.node not in inside)
            result[place] = replace(before, after=after)
            result.append(Chain(step.base, (step, *chain.before), chain.events, chain.after))
        else:
            result.append(chain)
    return result


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
    places = sorted(range(len(earlier)), key=lambda place: -earlier[place].last)
    return next(
        (
            place
            for place in places
            if earlier[place].last < chain.start and graph.between(earlier[place].last, chain.start)
        ),
        None,
    )


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
