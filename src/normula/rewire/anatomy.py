"""What a rewiring must know of each layer that was read: how the model's own code runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from normula.read.chain import Event
from normula.read.expression import Applied, Expression, Gained, Normed, Scaled, Stream, parts, walk
from normula.read.found import ReadChain, ReadLayer
from normula.read.graph import Graph
from normula.read.inner import inner_norms
from normula.read.norms import NAMES, statistics
from normula.read.reading import parameter_names
from normula.read.strip import step_down
from normula.read.sublayers import queries_and_keys
from normula.record.reading import UNKNOWN
from normula.rewire.errors import RewireError


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm on the stream, as the model has it.

    Attributes:
        path: of the module that it runs in.
        parameters: their names.
        site: in the layer; `embed`, `final`.
        kind: such as `LayerNorm`.
        eps, width, axes: of its statistics, the axes from the last.
        features: the axis of a token's features, from the last, and how many they are.
        stays: whether what it makes is the stream, rather than what a sublayer reads or has made.
        node: of the graph.
    """

    path: str
    parameters: tuple[str, ...]
    site: str
    kind: str
    eps: float
    width: int
    axes: tuple[int, ...]
    features: tuple[int, int]
    stays: bool
    node: int


@dataclass(frozen=True, slots=True)
class Sublayer:
    """A sublayer: its word, the module that holds all of it, what its output is multiplied by, and more.

    Attributes:
        gains: parameters that its output is multiplied by.
        in_parts: whether several values together are its output.
        subtracts: whether its output is less what it reads, as that of a pooling mixer.
        beside: whether its output goes into the stream together with another one's.
        shifts: how many constants, such as positions, are added to the stream after it.
        inner: what is normalised inside it.
        head: features of one head's queries; 0 where there is no single product of queries and keys.
        value_head: of one head's values.
        query_factor: what queries are multiplied by before that product.
        writer: the matrix of its last projection, and how many features that reads; empty where there is no one.
        applied: its nodes.
    """

    word: str
    path: str
    factor: float
    gains: tuple[str, ...]
    in_parts: bool
    subtracts: bool
    beside: bool
    shifts: int
    inner: tuple[str, ...]
    head: int
    value_head: int
    query_factor: float
    writer: str
    writer_width: int
    applied: Applied


@dataclass(frozen=True, slots=True)
class Anatomy:
    """One layer: the module whose forward runs it, its number from 1, its sublayers as they run, its norms.

    Attributes:
        start, end: the nodes of the stream before and after it.
    """

    path: str
    number: int
    text: str
    sublayers: tuple[Sublayer, ...]
    norms: tuple[Norm, ...]
    gains: tuple[str, ...]
    scaled: bool
    size: tuple[int, ...]
    start: int
    end: int

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(one.word for one in self.sublayers)


@dataclass(frozen=True, slots=True)
class Stack:
    """One stream: its layers, the norms before and after them, and whether another stream goes into it or comes of it.

    Attributes:
        follows: whether it begins with what an earlier stream has become.
        is_followed: whether a later stream begins with what this one has become.
    """

    layers: tuple[Anatomy, ...]
    embed: tuple[Norm, ...]
    final: tuple[Norm, ...]
    follows: bool
    is_followed: bool

    @property
    def norms(self) -> tuple[Norm, ...]:
        """Those on the stream, with those before and after it."""
        return (*self.embed, *(norm for layer in self.layers for norm in layer.norms), *self.final)


def anatomy(graph: Graph, found: Sequence[ReadChain]) -> tuple[Stack, ...]:
    """The streams of a model.

    Raises:
        RewireError: a part of the reading is unknown, or has several streams, or layers share a module.
    """
    if not found:
        raise RewireError("This model has no residual stream that was found; there is no placement to change.")
    stacks = []
    for place, one in enumerate(found):
        _check(one)
        starts, last = _start(one), one.layers[-1].layer.events[-1].node
        follows = any(graph.between(other.layers[-1].layer.events[-1].node, starts) for other in found[:place])
        followed = any(graph.between(last, _start(other)) for other in found[place + 1 :])
        path = _common_path(graph, one)
        layers = tuple(_layer(graph, layer, number, path) for number, layer in enumerate(one.layers, start=1))
        embed = tuple(_norm(graph, node, "embed", True) for node in one.embed)
        final = tuple(_norm(graph, node, "final", True) for node in one.final)
        stacks.append(Stack(layers, embed, final, follows, followed))
    _check_shared(graph, stacks)
    return tuple(stacks)


def _check(one: ReadChain) -> None:
    if one.begins:
        raise RewireError(
            f"{one.layers[0].layer.path or 'This model'} has {len(one.begins) + 1} streams; only models with one are "
            "rewired."
        )
    for number, layer in enumerate(one.layers, start=1):
        if layer.text == UNKNOWN:
            raise RewireError(
                f"A model is rewired only if all of it is understood, and layer {number} "
                f"({layer.layer.path or 'in the open'}) is not: {layer.seen}."
            )


def _start(one: ReadChain) -> int:
    return one.layers[0].layer.events[0].base


def _check_shared(graph: Graph, stacks: Sequence[Stack]) -> None:
    for stack in stacks:
        owners: dict[str, int] = {}
        scopes = {layer.path for layer in stack.layers}
        for layer in stack.layers:
            for name in (one for norm in layer.norms for one in norm.parameters):
                if owners.setdefault(name, layer.number) != layer.number:
                    raise RewireError(
                        f"Layers {owners[name]} and {layer.number} share {name}; a module that several layers share "
                        "cannot be given a placement of its own in each."
                    )
        ran = [call.path for call in graph.program.calls[1:]]  # the first is the model, which is called once more
        for path in scopes:
            layers = [layer.number for layer in stack.layers if layer.path == path]
            if len(layers) > 1 and ran.count(path) > 1:
                raise RewireError(
                    f"Layers {layers[0]} and {layers[1]} are one module, {path}; modules that several layers share "
                    "are not rewired."
                )


def _layer(graph: Graph, layer: ReadLayer, number: int, common: str) -> Anatomy:
    events = layer.layer.events
    path = graph.program.calls[layer.layer.call].path if layer.layer.call >= 0 else common
    sublayers = sorted((one for event in events for one in _sublayers(graph, event)), key=lambda pair: pair[0])
    return Anatomy(
        path=path,
        number=number,
        text=layer.text,
        sublayers=tuple(one for _, one in sublayers),
        norms=tuple(_norms(graph, layer)),
        gains=tuple(dict.fromkeys(name for event in events for name in _gains(graph, event.value))),
        scaled=any(isinstance(part, Scaled) for event in events for part in walk(event.value)),
        size=graph[events[-1].node].shape,
        start=events[0].base,
        end=events[-1].node,
    )


def _norms(graph: Graph, layer: ReadLayer) -> Iterator[Norm]:
    sites = layer.spelling.sites()
    for event in layer.layer.events:
        for part in walk(event.value):
            if isinstance(part, Normed):
                yield _norm(graph, part.norm, sites.get(part.norm, "norm"), not event.is_sum)


def _norm(graph: Graph, node: int, site: str, stays: bool) -> Norm:
    shape = graph[graph.inputs(node)[0]].shape
    axes, width = statistics(graph[node], shape)
    name = graph[node].attrs["name"]
    return Norm(
        path=graph.path(node),
        parameters=parameter_names(graph, node),
        site=site,
        kind=NAMES.get(name, name),
        eps=float(graph[node].attrs["eps"]),
        width=width,
        axes=tuple(axes),
        features=_features(graph, node, shape),
        stays=stays,
        node=node,
    )


def _features(graph: Graph, node: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """The axis of the features that a norm works on, from the last, and how many: of groups of channels, the first."""
    axes = graph[node].attrs["axes"]
    first = axes[0] if len(axes) == 1 or NAMES.get(graph[node].attrs["name"]) == "GroupNorm" else -1
    return (first if first < 0 else first - len(shape)), shape[first]


def _sublayers(graph: Graph, event: Event) -> list[tuple[int, Sublayer]]:
    """The sublayers of an event, each with a node that says when it runs."""
    found = list(_branches(graph, event.value, 1.0, ()))
    result = []
    for applied, factor, gains in found:
        if any(isinstance(part, Applied) for part in walk(applied.value)):
            raise RewireError(f"{applied.kind} reads what another sublayer gives it without a sum between them.")
        if _is_split(graph, applied):
            raise RewireError(
                f"A part of {applied.kind} reads the stream through a norm, and another part reads it without; no "
                "formula says that, and moving the norm would change both."
            )
        sides = queries_and_keys(graph, applied.nodes) if applied.kind in ("attn", "cross") else None
        writer, width = _writer(graph, applied)
        made = Sublayer(
            word=applied.kind,
            path=_module(graph, applied),
            factor=factor,
            gains=gains,
            in_parts=len(applied.ends) > 1,
            subtracts=min(applied.signs) < 0,
            beside=len(found) > 1,
            shifts=_shifts(graph, event),
            inner=tuple(inner_norms(graph, applied).values()),
            head=graph[sides[0]].shape[-1] if sides else 0,
            value_head=_value_head(graph, applied) if sides else 0,
            query_factor=_factor(graph, sides[0]) if sides else 1.0,
            writer=writer,
            writer_width=width,
            applied=applied,
        )
        result.append((runs_at(graph, applied), made))
    return result


def runs_at(graph: Graph, applied: Applied) -> int:
    """A node that says when a sublayer runs."""
    return min([node for node in applied.nodes if graph.is_mixing(node)] or list(applied.ends))


def _is_split(graph: Graph, applied: Applied) -> bool:
    """Whether a sublayer reads the stream both through a norm and without."""
    if isinstance(applied.value, Normed) and isinstance(applied.value.value, Stream):
        return any(applied.value.value.node in graph.inputs(node) for node in applied.nodes)
    return any(graph.kind(node) == "norm" and graph.inputs(node)[0] == applied.entry for node in applied.nodes)


def _value_head(graph: Graph, applied: Applied) -> int:
    """The features of one head's values, which scores are the weights of; 0 where there are no scores."""
    weights = [node for node in applied.nodes if graph.kind(node) == "softmax"]
    for node in applied.nodes:
        if graph.kind(node) == "attention":
            return graph[graph.inputs(node)[2]].shape[-1]
        if graph.is_data_product(node) and any(graph.between(one, node) for one in weights):
            return graph[node].shape[-1]
    return 0


def _writer(graph: Graph, applied: Applied) -> tuple[str, int]:
    """The one matrix that makes a sublayer's output, and how many features it reads."""
    node = applied.ends[0]
    while (step := step_down(graph, node)) is not None and step.how in ("view", "shift"):
        node = step.below
    if len(applied.ends) > 1 or graph.kind(node) != "matmul" or not graph.is_product(node):
        return "", 0
    names = graph.parameters(graph.inputs(node)[1])
    return (names[0], graph[graph.inputs(node)[0]].shape[-1]) if len(names) == 1 else ("", 0)


def _shifts(graph: Graph, event: Event) -> int:
    """How many constants a sum with a sublayer's output has after that; a stream may begin as a constant itself."""
    count, node = 0, event.node
    if graph.is_constant(event.base):
        return count
    while (step := step_down(graph, node)) is not None and step.how == "shift":
        count += 1
        node = step.below
    return count


def _factor(graph: Graph, queries: int) -> float:
    """What queries are multiplied by after their projection."""
    factor, node = 1.0, queries
    while (step := step_down(graph, node)) is not None and step.how in ("view", "number", "shift"):
        factor *= step.factor if step.how == "number" else 1.0
        node = step.below
    return factor


def _branches(
    graph: Graph, value: Expression, factor: float, gains: tuple[str, ...]
) -> Iterator[tuple[Applied, float, tuple[str, ...]]]:
    """The sublayers that are added, with the numbers and learned factors that multiply them."""
    match value:
        case Applied():
            yield value, factor, gains
        case Scaled(factor=number, value=inside):
            yield from _branches(graph, inside, factor * number, gains)
        case Gained(gain=gain, value=inside):
            yield from _branches(graph, inside, factor, (*gains, *graph.parameters(gain)))
        case _:
            for part in parts(value):
                yield from _branches(graph, part, factor, gains)


def _gains(graph: Graph, value: Expression) -> list[str]:
    return [name for part in walk(value) if isinstance(part, Gained) for name in graph.parameters(part.gain)]


def _module(graph: Graph, applied: Applied) -> str:
    calls = _shared_calls(graph, [node for node in applied.nodes if graph.is_mixing(node)] or list(applied.ends))
    return graph.program.calls[calls[-1]].path


def _common_path(graph: Graph, one: ReadChain) -> str:
    """The module whose forward runs all layers of a stream."""
    nodes = [
        node for layer in one.layers for event in layer.layer.events for node in (event.node, *_made_of(graph, event))
    ]
    return graph.program.calls[_shared_calls(graph, nodes)[-1]].path


def _made_of(graph: Graph, event: Event) -> list[int]:
    found: list[int] = []
    for part in walk(event.value):
        match part:
            case Normed(norm=norm):
                found.append(norm)
            case Applied(nodes=nodes):
                found += [node for node in nodes if graph.is_mixing(node)]
    return found


def _shared_calls(graph: Graph, nodes: Sequence[int]) -> tuple[int, ...]:
    scopes = [graph.calls(node) for node in nodes]
    shortest = min(scopes, key=len)
    for place, call in enumerate(shortest):
        if any(scope[place] != call for scope in scopes):
            return shortest[:place]
    return shortest
