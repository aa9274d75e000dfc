"""A rewiring for a model without modules that could be changed: what a pass of it does otherwise, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from normula.read.graph import Graph
from normula.read.norms import under_root
from normula.read.strip import step_down
from normula.record.nodes import NodeNorm, NodeOperation, NodeScript, NodeSublayer
from normula.record.rewiring import Operation, Script
from normula.rewire.anatomy import Anatomy, Norm, Stack, Sublayer
from normula.rewire.errors import RewireError


def by_nodes(graph: Graph, stacks: Sequence[Stack], operation: Operation) -> NodeOperation:
    """An operation, node by node.

    Raises:
        RewireError: a part of it cannot be done so.
    """
    ends = [norm for stack in stacks for norm in (*stack.embed, *stack.final)]
    gone = {path for path, _ in operation.passing}
    return NodeOperation(
        scripts=tuple(_script(graph, stacks, script) for script in operation.scripts),
        own={norm.path: _norm(graph, norm) for stack in stacks for norm in stack.norms},
        norms=operation.norms,
        gains=operation.gains,
        passing={norm.node: graph.inputs(norm.node)[0] for norm in ends if norm.path in gone},
        removed=operation.removed,
        bare=tuple(one.path for one in operation.bare),
        program=tuple((node.kind, node.inputs) for node in graph.program.nodes),
    )


def told_apart(stack: Stack) -> Stack:
    """A stream with a path of its own for each norm: where code calls norms in the open, by their parameters."""
    layers = tuple(
        replace(layer, norms=tuple(replace(norm, path=_own_path(norm, layer.path)) for norm in layer.norms))
        for layer in stack.layers
    )
    return replace(stack, layers=layers)


def _own_path(norm: Norm, scope: str) -> str:
    if norm.path.startswith(f"{scope}.") or (not scope and norm.path):
        return norm.path
    name = norm.parameters[0].rpartition("/")[2] if norm.parameters else norm.site.replace(".", "_")
    return f"{scope}.{name}".lstrip(".")


def _script(graph: Graph, stacks: Sequence[Stack], script: Script) -> NodeScript:
    layers = [layer for stack in stacks for layer in stack.layers if layer.path == script.path]
    if graph[layers[0].start].shape != layers[-1].size:
        raise _unlike(layers[0], graph[layers[0].start].shape, layers[-1].size)
    sublayers = [_sublayer(graph, layer, one) for layer in layers for one in layer.sublayers] if script.code else []
    return NodeScript(script=script, start=layers[0].start, end=layers[-1].end, sublayers=tuple(sublayers))


def _sublayer(graph: Graph, layer: Anatomy, one: Sublayer) -> NodeSublayer:
    if one.shifts or one.subtracts:
        what = "constants are added to the stream after it" if one.shifts else "it subtracts what it reads"
        raise RewireError(f"{one.word} of layer {layer.number} ({layer.path}) is not rewired in JAX: {what}.")
    entry, way = _entry(graph, layer, one)
    ends = one.applied.ends
    if len(ends) == 1:
        ends = (_whole(graph, layer, one),)
    for end in ends:
        if graph[end].shape != layer.size:
            raise _unlike(layer, graph[end].shape, layer.size)
    readers = _readers(graph, entry, {*one.applied.nodes, *way})
    return NodeSublayer(entry=entry, readers=readers, ends=tuple(zip(ends, one.applied.signs, strict=True)))


def _readers(graph: Graph, entry: int, inside: set[int]) -> frozenset[int]:
    """The nodes of a sublayer that read its entry, with those of which a node that was read is made."""
    found, parts = set[int](), set[int]()
    for number, node in enumerate(graph.program.nodes):
        if entry in node.inputs and not graph.alive[number]:
            parts.add(number)
        elif entry in (*node.inputs, *graph.inputs(number)) and graph.alive[number]:
            found |= {number, *parts} if number in inside else set()
            parts.clear()
    return frozenset(found)


def _entry(graph: Graph, layer: Anatomy, one: Sublayer) -> tuple[int, list[int]]:
    """What a sublayer reads where that has the shape of the stream, and the layouts of it that come after."""
    node, way = one.applied.entry, list[int]()
    while graph[node].shape != layer.size:
        step = step_down(graph, node)
        if step is None or step.how != "view":
            raise _unlike(layer, graph[one.applied.entry].shape, layer.size)
        way.append(node)
        node = step.below
    return node, way


def _whole(graph: Graph, layer: Anatomy, one: Sublayer) -> int:
    """The last node of a sublayer's output: with its bias, in the layout of the stream."""
    (end,) = one.applied.ends
    node, scaled = end, False
    while len(graph.users[node]) == 1:
        (user,) = graph.users[node]
        step = step_down(graph, user)
        if step is None or step.below != node or step.how not in ("view", "shift", "number", "gain"):
            break
        if scaled and step.how == "shift":
            raise RewireError(
                f"{one.word} of layer {layer.number} ({layer.path}) is multiplied before its bias is added; the new "
                "formula would multiply both."
            )
        scaled = scaled or step.how in ("number", "gain")
        node = user
        end = end if scaled else node
    return end


def _norm(graph: Graph, norm: Norm) -> NodeNorm:
    node = graph[norm.node]
    places = {name: node.attrs.get(name, -1) for name in ("gain", "bias", "alpha", "shift")}
    return NodeNorm(
        kind=node.attrs["name"],
        axes=tuple(axis if axis < 0 else axis - len(node.shape) for axis in node.attrs["axes"]),
        under=under_root(node),
        scale=float(node.attrs.get("scale", 1.0)),
        source=node.inputs[0],
        names=norm.parameters,
        **{name: node.inputs[place] for name, place in places.items() if place >= 0},
    )


def _unlike(layer: Anatomy, found: tuple[int, ...], wanted: tuple[int, ...]) -> RewireError:
    return RewireError(
        f"Layer {layer.number} ({layer.path or 'in the open'}) has its stream in shapes {found} and {wanted}; in JAX a "
        "stream is rewired that has one shape."
    )
