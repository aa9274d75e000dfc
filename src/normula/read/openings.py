"""What a layer does to the stream before its first sum: `x = conv(x); x = x + mlp(norm(x))`.

A chain of sums starts where its first sum's skip comes from. Where that is computed inside the first layer's module,
the layer begins earlier: at the value that its module was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normula.read.branch import Branches
from normula.read.chain import Chain, Event, nodes_of
from normula.read.expression import Applied, Unknown, walk
from normula.read.graph import Graph
from normula.read.layers import layers
from normula.read.stream import Residual


def opened(graph: Graph, chain: Chain, others: Sequence[Chain], sums: Mapping[int, Residual]) -> Chain:
    """A chain from the value on that its first layer was given, where what happens before its first sum is read."""
    call = _layer(graph, chain)
    if call is None or not 0 < layers(graph, chain).layers[0].call <= call or graph.kind(chain.start) == "norm":
        return chain
    entry = _given(graph, call, chain.start)
    steps = [event.node for other in others for event in other.events]
    if entry is None or any(entry < node < chain.start for node in steps):
        return chain
    known = Branches(graph, [entry], sums)
    first = chain.events[0]
    if not _goes_around(graph, entry, chain):
        event = Event(chain.start, entry, known.read(chain.start), False)
        whole = Chain(entry, (event, *chain.before), chain.events, chain.after)
    elif first.is_sum and not chain.before:
        event = Event(first.node, entry, known.read(first.node), True)
        whole = Chain(entry, (), (event, *chain.events[1:]), chain.after)
    else:
        return chain
    parts = list(walk(event.value))
    understood = not any(isinstance(part, Unknown) for part in parts)
    return whole if understood and any(isinstance(part, Applied) for part in parts) else chain


def _layer(graph: Graph, chain: Chain) -> int | None:
    """The module in a list of modules that a chain starts in, and its first sum is made in."""
    first = next(event for event in chain.events if event.is_sum)
    nodes = [*nodes_of(graph, first), first.node]
    calls = [call for call in graph.calls(chain.start) if all(call in graph.calls(node) for node in nodes)]
    return calls[-1] if calls and graph.program.calls[calls[-1]].path.rpartition(".")[2].isdigit() else None


def _goes_around(graph: Graph, entry: int, chain: Chain) -> bool:
    """Whether the first sum reads what a layer was given other than through the start of the chain."""
    stack, seen = [next(event for event in chain.events if event.is_sum).node], {chain.start}
    while stack:
        for one in graph.inputs(stack.pop()):
            if one >= entry and one not in seen:
                seen.add(one)
                stack.append(one)
    return entry in seen


def _given(graph: Graph, call: int, node: int) -> int | None:
    """The one value from outside a module call that a node inside was computed from, weights and constants apart."""
    found: set[int] = set()
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        if call not in graph.calls(one):
            found.add(one)
            continue
        for before in graph.inputs(one):
            if before not in seen and not graph.is_constant(before):
                seen.add(before)
                stack.append(before)
    return found.pop() if len(found) == 1 else None
