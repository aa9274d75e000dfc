"""From a program to a reading: its streams, each layer proved before it is said, and all norms and sublayers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from normula.read.chain import Event
from normula.read.expression import Applied, Normed, Total, walk
from normula.read.findings import Seen, findings
from normula.read.found import ReadChain, ReadLayer
from normula.read.graph import Graph
from normula.read.inner import has_batchnorm, inner_norms
from normula.read.names import Stack, fixed_numbers, names
from normula.read.norms import NAMES, statistics
from normula.read.plain import Depth
from normula.read.replay import RefusedError, Written, needed, replay
from normula.read.streams import analysed, events_of, sublayers_of
from normula.record.program import Program
from normula.record.reading import UNKNOWN, Reading, ReadNorm, ReadStage, ReadSublayer

ValuesOf: TypeAlias = Callable[[frozenset[int]], Mapping[int, Any] | None]
"""The values of some nodes, computed by another pass; None where that pass computed something else."""


def reading_of(program: Program, values_of: ValuesOf) -> Reading | None:
    """The reading of a program, replayed where values can be had; None where no two passes are the same."""
    found = reading_and_ends(program, values_of)
    return None if found is None else found[0]


def reading_and_ends(program: Program, values_of: ValuesOf) -> tuple[Reading, dict[str, int]] | None:
    """The same, and for each layer by its path the node of the stream after it."""
    graph, found = analysed(program)
    if program.real and not _prove(graph, found, values_of):
        return None
    for one in found:
        one.stages = _stages(one.layers)
    norms, nodes = _norms(graph, found)
    on_stream = [norm for norm in norms if "norm" in norm.site] or [
        norm for norm in norms if norm.site in ("embed", "final")
    ]
    sides = _sides(found)
    stages = tuple(_stage(graph, one, stage, _stack(one, sides)) for one in found for stage in one.stages)
    embed = tuple(bool(one.embed) and place == 0 for one in found for place in range(len(one.stages)))
    final = tuple(bool(one.final) and place == len(one.stages) - 1 for one in found for place in range(len(one.stages)))
    applied = [(_path(graph, part), part) for one in found for event in events_of(one) for part in sublayers_of(event)]
    seen = Seen(graph=graph, stages=stages, embed=embed, final=final, norms=norms, applied=applied, norm_nodes=nodes)
    reading = Reading(
        stages=stages,
        embed_norms=embed,
        final_norms=final,
        norm=_commonest([norm.kind for norm in on_stream]) or "none",
        eps=_commonest([norm.eps for norm in on_stream]),
        inner=_inner_words(graph, found),
        norms=tuple(norms),
        sublayers=tuple(_sublayers(graph, found)),
        findings=findings(seen),
        fused=program.fused,
    )
    return reading, {
        f"{place}:{number}:{layer.layer.path}": layer.ends.get("x", layer.layer.events[-1].node)
        for place, one in enumerate(found)
        for number, layer in enumerate(one.layers, start=1)
    }


def written_of(layer: ReadLayer) -> Written:
    """A layer's formula, with all that a replay of it needs."""
    events = layer.layer.events
    return Written(
        text=layer.spelling.written,
        made=tuple(layer.spelling.made),
        starts=layer.starts or {"x": max(events[0].base, events[0].root)},
        ends=layer.ends or {"x": events[-1].node},
        sums=tuple(part.node for event in events for part in walk(event.value) if isinstance(part, Total)),
    )


def _prove(graph: Graph, found: list[ReadChain], values_of: ValuesOf) -> bool:
    """Replay every layer; a formula that fails is not said. False where there are no values to replay."""
    closings = [one.closing for one in found if one.closing is not None]
    read = [layer for one in found for layer in one.layers if layer.text != UNKNOWN] + closings
    written = [written_of(layer) for layer in read]
    values = values_of(frozenset(node for one in written for node in needed(graph, one)))
    if values is None:
        return False
    for layer, one in zip(read, written, strict=True):
        try:
            replay(graph, one, values)
            layer.proof = "replayed"
        except RefusedError as refusal:
            layer.seen = f"{layer.text}, but {refusal}"
            layer.text, layer.proof = UNKNOWN, "failed"
    return True


def _stages(found: list[ReadLayer]) -> list[list[ReadLayer]]:
    """Equal layers one after another."""
    stages: list[list[ReadLayer]] = []
    for layer in found:
        if stages and stages[-1][-1].text == layer.text:
            stages[-1].append(layer)
        else:
            stages.append([layer])
    return stages


def _sides(found: list[ReadChain]) -> Depth:
    """How many layers an encoder and the decoder that attends to it have."""
    decoder = next((place for place, one in enumerate(found) if "cross(" in one.layers[0].text), 0)
    return (("Le", len(found[decoder - 1].layers)), ("Ld", len(found[decoder].layers))) if decoder else ()


def _stack(one: ReadChain, sides: Depth) -> Stack:
    """All layers of a stream, as they are named by."""
    return Stack(
        texts=tuple(layer.text for layer in one.layers),
        embed=bool(one.embed),
        final=bool(one.final),
        streams=tuple(one.begins.items()),
        closing=_closing(one),
        sides=sides,
    )


def _stage(graph: Graph, one: ReadChain, stage: list[ReadLayer], stack: Stack) -> ReadStage:
    first = stage[0]
    proofs = {layer.proof for layer in stage}
    called = [_names(graph, one, layer, stack) for layer in (first, stage[-1])]
    return ReadStage(
        where=_where([layer.layer.path for layer in stage]),
        layers=len(stage),
        block=first.text,
        names=tuple(name for name in called[0] if name in called[1]),
        constants=fixed_numbers(first.text),
        proof=proofs.pop() if len(proofs) == 1 else "not replayed",
        seen=first.seen,
        paths=tuple(layer.layer.path for layer in stage),
        streams=tuple(f"{name} = {start}".rstrip() for name, start in one.begins.items()),
        closing=_closing(one),
    )


def _closing(one: ReadChain) -> str:
    """What comes out of several streams after the last layer, where it is known."""
    return one.closing.text if one.closing is not None and one.closing.text != UNKNOWN else ""


def _names(graph: Graph, one: ReadChain, layer: ReadLayer, stack: Stack) -> tuple[str, ...]:
    """What the catalogue calls a layer at its depth."""
    place = next(place for place, other in enumerate(one.layers, start=1) if other is layer)
    return names(stack, place, tuple(word for event in layer.layer.events for word in _inner_of(graph, event)))


def _where(paths: list[str]) -> str:
    """What the paths of some layers begin with."""
    if len(paths) == 1:
        return paths[0]
    split = [path.split(".") for path in paths]
    common: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def _commonest(values: list[Any]) -> Any:
    return max(values, key=values.count) if values else None


def _norms(graph: Graph, found: list[ReadChain]) -> tuple[list[ReadNorm], list[tuple[int, ...]]]:
    """Every norm of the program, by its parameters where it has any, else by its path; and its nodes."""
    sites: dict[int, tuple[str, int]] = {}
    for one in found:
        sites |= dict.fromkeys(one.embed, ("embed", 0))
        sites |= dict.fromkeys(one.final, ("final", 0))
        for number, layer in enumerate(one.layers, start=1):
            names = layer.spelling.sites()
            for event in layer.layer.events:
                for part in walk(event.value):
                    if isinstance(part, Normed):
                        sites.setdefault(part.norm, (names.get(part.norm, "norm"), number))
                    elif isinstance(part, Applied):
                        for node, site in inner_norms(graph, part).items():
                            sites.setdefault(node, (site, number))
    groups: dict[tuple[str, ...], list[int]] = {}
    for node in range(len(graph)):
        if graph.alive[node] and graph.kind(node) == "norm":
            groups.setdefault(_identity(graph, node), []).append(node)
    return [_norm(graph, nodes, sites) for nodes in groups.values()], [tuple(nodes) for nodes in groups.values()]


def _identity(graph: Graph, node: int) -> tuple[str, ...]:
    names = parameter_names(graph, node)
    return names or (graph.path(node), str(node) if not graph.path(node) else "")


def parameter_names(graph: Graph, node: int) -> tuple[str, ...]:
    """The parameters of a norm: of its gain, then of its bias."""
    attrs = graph[node].attrs
    places = [attrs[label] for label in ("gain", "bias") if attrs[label] >= 0]
    return tuple(name for place in places for name in graph.parameters(graph.inputs(node)[place]))


_WIDE = {"bfloat16": "float32", "float16": "float32"}
"""In which operators of a framework take statistics of a value."""


def _norm(graph: Graph, nodes: list[int], sites: dict[int, tuple[str, int]]) -> ReadNorm:
    first = nodes[0]
    node, source = graph[first], graph[graph.inputs(first)[0]]
    found = [sites.get(one, ("elsewhere", 0)) for one in nodes]
    axes, width = statistics(node, source.shape)
    return ReadNorm(
        path=graph.path(first),
        parameters=parameter_names(graph, first),
        site=found[0][0],
        kind=NAMES.get(node.attrs["name"], node.attrs["name"]),
        eps=float(node.attrs["eps"]),
        axes=axes,
        width=width,
        calls=len(nodes),
        shared=len(set(found)) > 1,
        dtype=node.attrs.get("dtype", _WIDE.get(source.dtype, source.dtype)),
        layers=tuple(dict.fromkeys(layer for _, layer in found)),
    )


def _inner_words(graph: Graph, found: list[ReadChain]) -> tuple[str, ...]:
    """What is normalised inside sublayers."""
    words = [
        word
        for one in found
        for layer in one.layers
        for event in layer.layer.events
        for word in _inner_of(graph, event)
    ]
    return tuple(dict.fromkeys(words))


def _inner_of(graph: Graph, event: Event) -> list[str]:
    words: list[str] = []
    for part in sublayers_of(event):
        words += inner_norms(graph, part).values()
        words += ["BatchNorm"] if has_batchnorm(graph, part) else []
    return words


def _sublayers(graph: Graph, found: list[ReadChain]) -> list[ReadSublayer]:
    result = []
    for one in found:
        for number, layer in enumerate(one.layers, start=1):
            for event in layer.layer.events:
                for part in walk(event.value):
                    if isinstance(part, Applied):
                        inner = tuple(dict.fromkeys(inner_norms(graph, part).values()))
                        result.append(ReadSublayer(kind=part.kind, path=_path(graph, part), layer=number, inner=inner))
    return result


def _path(graph: Graph, applied: Applied) -> str:
    """The module that holds all products of a sublayer."""
    calls = [graph.calls(one) for one in applied.nodes if graph.is_mixing(one)]
    if not calls:
        return graph.path(applied.ends[0])
    common = [call for call in calls[0] if all(call in others for others in calls)]
    return graph.program.calls[common[-1]].path
