"""What stands on a stream before its first layer and after its last."""

from __future__ import annotations

from normula.read.expression import Applied, Normed, walk
from normula.read.graph import Graph
from normula.read.layers import Layers
from normula.read.norms import is_norm
from normula.read.strip import step_down


def embed_norms(graph: Graph, layers: Layers) -> tuple[int, ...]:
    """The norms on the stream before the first layer, also where an addition or a projection comes in between."""
    last_sum = max((place for place, event in enumerate(layers.before) if event.is_sum), default=-1)
    events = layers.before[last_sum + 1 :]
    found = [part.norm for event in events for part in walk(event.value) if isinstance(part, Normed)]
    if found:
        return tuple(found)
    first = layers.layers[0].events[0]
    if any(isinstance(part, Applied) for event in (*events, first) if not event.is_sum for part in walk(event.value)):
        return ()  # the stream goes on from another one
    return tuple(_below(graph, first.base))


def final_norms(graph: Graph, layers: Layers) -> tuple[int, ...]:
    """The norms on the stream after the last layer, on all tokens or on some; not of tokens that are merged."""
    norms = [part.norm for event in layers.after for part in walk(event.value) if isinstance(part, Normed)]
    events = [event for layer in layers.layers for event in layer.events]
    widths = {_width(graph, part.norm) for event in events for part in walk(event.value) if isinstance(part, Normed)}
    return tuple(norm for norm in norms if not widths or _width(graph, norm) in widths)


def _width(graph: Graph, norm: int) -> int:
    shape = graph[graph.inputs(norm)[0]].shape
    width = 1
    for axis in graph[norm].attrs["axes"]:
        width *= shape[axis]
    return width


def _below(graph: Graph, start: int) -> list[int]:
    """The norms that a value was made from by additions, joins and projections of looked-up embeddings.

    Where something else was added, such as a convolution of the normed value, the stream does not start with a norm.
    """
    known: dict[int, list[int] | None] = {}

    def visit(node: int, projected: bool) -> list[int] | None:
        """The norms below a node: none for a table, None for anything else."""
        if node in known:
            return known[node]
        known[node] = None
        kind = graph.kind(node)
        if graph.is_constant(node) or kind == "lookup":
            known[node] = []
        elif kind == "norm" and is_norm(graph, node):
            known[node] = [node] if not projected or _is_looked_up(graph, node) else None
        elif (step := step_down(graph, node)) is not None and step.how != "norm":
            known[node] = visit(step.below, projected)
        elif kind == "matmul" and graph.is_product(node):
            known[node] = visit(graph.inputs(node)[0], True)
        elif kind in _PASSED:
            parts = [visit(one, projected) for one in graph.inputs(node)]
            whole = [part for part in parts if part is not None]
            known[node] = [norm for part in whole for norm in part] if len(whole) == len(parts) else None
        return known[node]

    return list(dict.fromkeys(visit(start, False) or ()))


_PASSED = frozenset(("add", "sub", "mul", "div", "join", "write", "pool", "resample"))


def _is_looked_up(graph: Graph, node: int) -> bool:
    """Whether a value comes from tables alone: neither from convolutions nor from numbers that the model was given."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        if graph.kind(one) == "conv" or (graph.kind(one) == "input" and not graph.unlearned[one]):
            return False
        if graph.kind(one) == "lookup":
            continue
        for before in graph.inputs(one):
            if before not in seen:
                seen.add(before)
                stack.append(before)
    return True
