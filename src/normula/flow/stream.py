"""From a stream that was read to its steps: where each begins and ends, what is branch in it and what is skip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from normula.read.chain import Event
from normula.read.expression import Applied, Expression, Gained, Normed, Scaled, streams, walk
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.norms import is_norm, under_root
from normula.read.stream import terms_of
from normula.read.strip import step_down
from normula.record.stream import LastNorm, NormSite, Stream, StreamStep, Term

SHARED: Final = frozenset(
    ("view", "reshape", "_unsafe_view", "_reshape_alias", "alias", "t", "transpose", "permute", "movedim", "squeeze")
) | {"unsqueeze", "slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind", "expand", "part"}
"""Views of the memory of their input: whoever goes on with the input goes on with the same numbers."""


STATISTICS: Final = ("layernorm", "rmsnorm", "l2norm", "groupnorm")
"""Norms that divide by something of the token; a dynamic tanh does not."""


def stream_of(graph: Graph, chains: Sequence[ReadChain], proved: Sequence[Sequence[bool]], place: int) -> Stream:
    """The steps of one stream of a program, by node.

    Args:
        graph, chains: the program, and its streams.
        proved: for each layer of each stream, whether its formula is known to be right.
        place: of the stream.
    """
    chain, known = chains[place], proved[place]
    steps: list[StreamStep] = []
    for number, (layer, is_known) in enumerate(zip(chain.layers, known, strict=True), start=1):
        if is_known:
            steps += [_step(graph, group, number) for group in groups(layer.layer.events)]
    understood = [
        layer
        for one, those in zip(chains, proved, strict=True)
        for layer, is_known in zip(one.layers, those, strict=True)
        if is_known
    ]
    ends = [end for layer in understood for part in _applied(layer.layer.events) for end in part.ends]
    ends += [_made(graph, end) for end in ends]
    first = next((event for event in (*chain.cut.before, *_events(chain))), None)
    last = next(at for at in range(len(chains) - 1, -1, -1) if chains[at].layers)
    norms = [_last_norm(graph, chains[at]) for at in dict.fromkeys((last, place))]
    axis, width = _features(graph, chain, steps)
    return Stream(
        start=-1 if first is None else _made(graph, _root(first)),
        steps=tuple(steps),
        held=tuple((end, _data(graph, end)) for end in dict.fromkeys(ends)),
        norms=tuple(norm for norm in norms if norm is not None),
        features=axis,
        width=width,
        unknown=tuple(number for number, is_known in enumerate(known, start=1) if not is_known),
        unknown_beyond=not all(is_known for those in proved[place + 1 :] for is_known in those),
        centred=_is_centred(graph, chain),
        sites=norm_sites(graph),
    )


def norm_sites(graph: Graph) -> tuple[NormSite, ...]:
    """All norms of a program that take the statistics of whole tokens."""
    return tuple(
        NormSite(
            path=graph.path(number),
            name=node.attrs["name"],
            source=node.inputs[0],
            axes=tuple(node.attrs["axes"]),
            eps=float(node.attrs["eps"]),
        )
        for number, node in enumerate(graph.nodes)
        if graph.alive[number] and is_norm(graph, number) and node.attrs["name"] in STATISTICS
    )


def _is_centred(graph: Graph, chain: ReadChain) -> bool:
    """Whether a LayerNorm stands between the last layer and all that reads the stream."""
    after = chain.cut.after
    first = after[0].value if after else None
    return isinstance(first, Normed) and graph[first.norm].attrs["name"] == "layernorm"


def groups(events: Sequence[Event]) -> list[list[Event]]:
    """The events of a layer by steps: a step ends where all that follows reads the stream from there on.

    A norm between two sums belongs to the one after it where the layer begins with a norm, n = norm(x); n + f(n), and
    else to the one before it, norm(x + f(x)).
    """
    leading = not _acts(events[0])
    result: list[list[Event]] = []
    current: list[Event] = []
    for place, event in enumerate(events):
        if leading or _acts(event):
            ends = [
                at
                for at, one in enumerate(current)
                if _is_cut(one, events[place:]) and any(_acts(before) for before in current[: at + 1])
            ]
            if ends:
                last = ends[0] if leading else ends[-1]
                result.append(current[: last + 1])
                current = current[last + 1 :]
        current.append(event)
    if result and not any(_acts(event) for event in current):
        result[-1] += current
        return result
    return [*result, current]


def _root(event: Event) -> int:
    """The value before an event, as it is carried and read: with positions, and with tokens that were joined to it."""
    return event.root if event.root >= 0 else event.base


def _made(graph: Graph, node: int) -> int:
    """Where the numbers of a node were made: a view of them may be taken and never used, and the gradient passes by."""
    while graph.kind(node) == "view" and graph[node].attrs.get("name") in SHARED:
        below = graph.inputs(node)[0]
        if graph[below].size != graph[node].size:
            break
        node = below
    return node


def _acts(event: Event) -> bool:
    """Whether a sublayer runs in an event; else the stream is normed or scaled."""
    return event.is_sum or bool(_applied([event]))


def _is_cut(event: Event, later: Sequence[Event]) -> bool:
    """Whether all later events read the stream from here on, and nothing of it from before."""
    return all(node >= event.node for one in later for node in streams(one.value))


def _step(graph: Graph, group: Sequence[Event], number: int) -> StreamStep:
    before, last = _root(group[0]), group[-1]
    act = next((event for event in reversed(group) if _acts(event)), last)
    total = act.node if act.is_sum else -1
    branch: list[Term] = []
    skip: list[Term] = []
    carried: list[Term] = []
    if total >= 0:
        for term in terms_of(graph, total):
            source = _carried(graph, term.node, before)
            if source is None:
                branch.append((term.sign, term.node))
            else:
                skip.append((term.sign, term.node))
                carried.append((term.sign * source[0], source[1]))
    elif isinstance(inner := _inside_norms(act.value), Applied):
        branch = list(zip(inner.signs, inner.ends, strict=True))
    else:
        skip = [(1.0, before)]
    words = dict.fromkeys(part.kind for part in _applied(group))
    return StreamStep(
        layer=number,
        name="+".join(words) or "norm",
        before=before,
        after=last.node,
        place=_made(graph, before),
        total=total,
        branch=tuple(branch),
        skip=tuple(skip),
        carried=tuple(carried),
    )


def _carried(graph: Graph, node: int, before: int) -> Term | None:
    """A term that carries the stream: its factor, and the stream, or the last other thing that was made of it."""
    factor, stopped = 1.0, -1
    while node != before:
        step = step_down(graph, node)
        if step is None or step.how == "batchnorm":
            return None
        if stopped < 0:
            if step.how == "number":
                factor *= step.factor
            elif step.how != "view" or graph[step.below].shape != graph[node].shape:
                stopped = node
        node = step.below
    return factor, node if stopped < 0 else stopped


def _inside_norms(expression: Expression) -> Expression:
    while isinstance(expression, Normed | Scaled | Gained):
        expression = expression.value
    return expression


def _applied(events: Sequence[Event]) -> list[Applied]:
    return [part for event in events for part in walk(event.value) if isinstance(part, Applied)]


def _events(chain: ReadChain) -> list[Event]:
    return [event for layer in chain.layers for event in layer.layer.events]


def _data(graph: Graph, node: int) -> tuple[int, ...]:
    """What flows into an operator, without weights and constants."""
    return tuple(one for one in graph.inputs(node) if not graph.is_constant(one))


def _last_norm(graph: Graph, chain: ReadChain) -> LastNorm | None:
    """The norm that the last value of the stream comes out of: after the last layer, or at its end."""
    events = chain.cut.after or chain.layers[-1].layer.events
    if not events or not isinstance(closing := events[-1].value, Normed):
        return None
    node = graph[closing.norm]
    source = node.inputs[0]
    if graph[_made(graph, source)].shape == graph[source].shape:
        source = _made(graph, source)
    if tuple(node.attrs["axes"]) != (len(graph[source].shape) - 1,):
        return None
    gain = node.attrs["gain"]
    return LastNorm(
        node=closing.norm,
        source=source,
        gain=node.inputs[gain] if gain >= 0 else -1,
        name=node.attrs["name"],
        under=under_root(node),
        scale=float(node.attrs.get("scale", 1.0)),
    )


def _products(graph: Graph, chain: ReadChain) -> list[int]:
    return [one for part in _applied(_events(chain)) for one in part.nodes if graph.is_product(one)]


def _features(graph: Graph, chain: ReadChain, steps: Sequence[StreamStep]) -> tuple[int | None, int]:
    """The axis of the features in the stream, and their number: as a norm of the stream has it, or by the number."""
    if not steps:
        return None, 0
    shape = graph[steps[0].before].shape
    values = {one for step in steps for one in (step.before, step.after, step.total)}
    widths: list[int] = []
    for event in (*chain.cut.before, *_events(chain), *chain.cut.after):
        for part in walk(event.value):
            if isinstance(part, Normed) and len(axes := graph[part.norm].attrs["axes"]) == 1:
                source = graph.inputs(part.norm)[0]
                if source in values and graph[source].shape == shape:
                    return int(axes[0]), shape[axes[0]]
                widths.append(graph[source].shape[axes[0]])
    if not widths:  # matrices multiply the last axis, and convolutions do not
        convolves = any(graph.kind(one) != "matmul" for one in _products(graph, chain))
        return (None, 0) if convolves or not shape else (len(shape) - 1, shape[-1])
    width = max(widths, key=widths.count)
    found = [axis for axis, length in enumerate(shape) if length == width]
    if len(found) == 1 or (found and found[-1] == len(shape) - 1 and len(shape) <= 3):
        return found[-1], width
    return None, width
