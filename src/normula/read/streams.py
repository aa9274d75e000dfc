"""From a program to its streams: chains of residual sums that are stacks of layers, each layer with its formula.

What is left over must be accounted for: attention that is in no layer and no head, a step without a skip, a layer
that begins with what was not read, make the layers around them unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from normula.read.chain import Chain, Event, chains, nodes_of
from normula.read.edges import embed_norms, final_norms
from normula.read.expression import Applied, Normed, Unknown, walk
from normula.read.found import ReadChain, ReadLayer
from normula.read.graph import Graph
from normula.read.layers import Layer, Layers, layers
from normula.read.norms import with_norms
from normula.read.several import several
from normula.read.spell import Spelling
from normula.read.stream import residuals
from normula.read.strip import step_down
from normula.read.sublayers import scores_of
from normula.read.transitions import connected, stands_beside
from normula.record.program import Program
from normula.record.reading import UNKNOWN


def analysed(program: Program) -> tuple[Graph, list[ReadChain]]:
    """The streams of a program with their layers, before any proof."""
    graph = with_norms(Graph(program))
    result: list[ReadChain] = []
    sums, skips = residuals(graph)
    kinds: set[int] = set()
    found = chains(graph, sums, skips)
    stacks = _without_heads(graph, connected(graph, _stacks(graph, found), sums, skips))
    for chain in stacks:
        cut = layers(graph, chain, frozenset(kinds))
        kinds |= {program.calls[layer.call].kind for layer in cut.layers if layer.call >= 0 and len(cut.layers) > 1}
        read = [_outside(graph, event, cut) for event in cut.before if _replaces(event)]
        for layer in cut.layers:
            spelling = Spelling(graph, layer.events)
            read.append(ReadLayer(layer, spelling, spelling.text, spelling.seen))
        for one, after in pairwise(read):
            if _is_unknown(one.layer.events[-1]) and after.text != UNKNOWN:
                after.text, after.seen = UNKNOWN, one.seen
        if _starts_inside(graph, cut, {one.last for one in found}):
            first = read[-len(cut.layers)]
            first.text, first.seen = UNKNOWN, "a layer that begins with what is not understood"
        if _is_bent_conv(graph, chain):
            for one in read:
                one.text, one.seen = UNKNOWN, "the stream itself goes through a nonlinearity after a sum"
        if _is_joined(graph, chain):
            for one in read:
                one.text, one.seen = UNKNOWN, "another stream is added to this one after the last layer"
        earlier = {part.norm for one in result for event in events_of(one) for part in _norms_of(event)}
        embed = tuple(norm for norm in embed_norms(graph, cut) if norm not in earlier)
        result.append(ReadChain(cut, read, embed, final_norms(graph, cut)))
    inside = {
        part.norm for one in result for layer in one.layers for event in layer.layer.events for part in _norms_of(event)
    }
    for stream in result:
        stream.final = tuple(norm for norm in stream.final if norm not in inside)
    _cover(graph, result, found)
    _distrust_fragments(result)
    if any(layer.text == UNKNOWN for one in result for layer in one.layers):
        together = several(graph, sums)
        if together and _covers(graph, together, stacks):
            _cover(graph, together, ())
            return graph, together
    return graph, result


def _covers(graph: Graph, found: Sequence[ReadChain], stacks: Sequence[Chain]) -> bool:
    """Whether all that the sublayers of some chains multiply by is in the layers that were found."""
    inside = {
        node
        for one in found
        for layer in one.layers
        for event in layer.layer.events
        for part in sublayers_of(event)
        for node in part.nodes
    }
    return all(
        node in inside or not graph.is_mixing(node)
        for chain in stacks
        for part in _applied(chain)
        for node in part.nodes
    )


def _distrust_fragments(found: list[ReadChain]) -> None:
    """A stream of a single sum, beside what is not understood, may be a piece of that."""
    if any(one.text == UNKNOWN for stream in found for one in stream.layers):
        for stream in found:
            if len([event for event in events_of(stream) if event.is_sum]) == 1:
                for one in stream.layers:
                    one.text, one.seen = UNKNOWN, one.seen or "a single sum beside what is not understood"


def _replaces(event: Event) -> bool:
    """Whether an event outside layers is more than a norm of the stream."""
    return not event.is_sum and any(isinstance(part, Applied | Unknown) for part in walk(event.value))


def events_of(one: ReadChain) -> list[Event]:
    """The events of a stream, in its layers and outside."""
    return [*one.cut.before, *(event for layer in one.cut.layers for event in layer.events), *one.cut.after]


def _norms_of(event: Event) -> list[Normed]:
    return [part for part in walk(event.value) if isinstance(part, Normed)]


def _is_unknown(event: Event) -> bool:
    return any(isinstance(part, Unknown) for part in walk(event.value))


def _not_understood(graph: Graph, event: Event, seen: str = "") -> ReadLayer:
    """A step of the stream that is in no layer."""
    spelling = Spelling(graph, [event])
    seen = seen or f"outside of any layer, the stream is replaced without a skip: {spelling.text}"
    return ReadLayer(Layer((event,), graph.path(event.node)), spelling, UNKNOWN, seen)


def _outside(graph: Graph, event: Event, cut: Layers) -> ReadLayer:
    """A step without a skip before the first layer: a layer if it attends, or is a block of their list."""
    kinds = {part.kind for part in sublayers_of(event)}
    spelling = Spelling(graph, [event])
    is_block = kinds == {"conv"} and stands_beside(graph, event, cut.layers[0].path)
    if spelling.text == UNKNOWN or not (kinds & {"attn", "cross"} or is_block):
        return _not_understood(graph, event)
    scopes = [graph.calls(node) for node in nodes_of(graph, event)]
    call = max(call for call in scopes[0] if all(call in scope for scope in scopes))
    return ReadLayer(Layer((event,), graph.program.calls[call].path), spelling, spelling.text, "")


def _starts_inside(graph: Graph, cut: Layers, ends: Collection[int]) -> bool:
    """Whether the first layer's module does something to the stream before its first sum that was not read."""
    first = cut.layers[0]
    start = first.events[0].base
    whole = (
        first.call <= 0 or start in ends or graph.kind(start) in ("input", "parameter", "constant", "lookup", "norm")
    )
    return not whole and len(cut.layers) > 1 and first.call in graph.calls(start)


def _is_joined(graph: Graph, chain: Chain) -> bool:
    """Whether something that flows beside the stream is added to what comes out of its last layer."""
    stack, seen = [chain.last, *(event.node for event in chain.after)], {chain.last}
    while stack:
        node = stack.pop()
        for user in graph.users[node]:
            step = step_down(graph, user)
            if step is not None and step.below == node and step.how in ("view", "number", "shift", "norm"):
                if user not in seen:
                    seen.add(user)
                    stack.append(user)
            elif graph.kind(user) in ("add", "sub") and graph[user].size == graph[node].size:
                others = [one for one in graph.inputs(user) if one != node]
                if any(not graph.is_constant(one) and not graph.between(chain.last, one) for one in others):
                    return True
    return False


def _cover(graph: Graph, found: list[ReadChain], chains: Sequence[Chain]) -> None:
    """Attention that is in no layer, and is not a head that pools the last one's output, is not understood."""
    covered = {one for chain in chains for part in _applied(chain) for one in part.nodes}
    events = [event for one in found for event in events_of(one)]
    covered |= {one for event in events for part in sublayers_of(event) for one in part.nodes}
    feeding = _made_from(graph, [event.node for event in events]) if found else set(range(len(graph)))
    layers = [layer for one in found for layer in one.layers]
    for node in range(len(graph)):
        if not graph.alive[node] or node in covered or not _attends(graph, node):
            continue
        if node not in feeding and _asks_itself(graph, node):
            continue
        seen = f"attention outside of any residual sum, in {graph.path(node) or 'the model'}"
        holder = next(
            (layer for layer in layers if layer.layer.call > 0 and layer.layer.call in graph.calls(node)), None
        )
        if holder is not None and holder.text == UNKNOWN:
            continue  # by what stands between
        if holder is not None:
            holder.text, holder.seen = UNKNOWN, seen
        else:
            event = Event(node, graph.inputs(node)[0], Unknown(node, seen), False)
            if not found:
                found.append(ReadChain(Layers((), (), ()), [], (), ()))
            found[-1].layers.append(_not_understood(graph, event, seen))


def _made_from(graph: Graph, nodes: Sequence[int]) -> set[int]:
    """The nodes that some are made from, with themselves."""
    found, stack = set(nodes), list(nodes)
    while stack:
        for one in graph.inputs(stack.pop()):
            if one not in found:
                found.add(one)
                stack.append(one)
    return found


def _stacks(graph: Graph, found: Sequence[Chain]) -> list[Chain]:
    """The chains that may be layers: no stem with bent sums, no second group of tokens, no tail of convolutions."""
    kinds = [{part.kind for part in _applied(chain)} for chain in found]
    last = max((place for place, one in enumerate(kinds) if one - {"conv", "ssm"}), default=len(found))
    weights = [_weights(graph, chain) for chain in found]
    bent: list[Chain] = []
    result: list[Chain] = []
    for place, chain in enumerate(found[: last + 1]):
        is_second = any(weights[place] <= other for at, other in enumerate(weights) if at != place)
        is_decomposed = kinds[place] == {"pool"} and len(chain.events) == 1
        if _is_bent_conv(graph, chain):
            bent.append(chain)
        elif not (is_decomposed or (is_second and weights[place])):
            result.append(chain)
    patterns = {_pattern(graph, chain) for chain in result} - {""}
    result += [chain for chain in bent if _pattern(graph, chain) in patterns]
    return sorted(result, key=found.index)


def _pattern(graph: Graph, chain: Chain) -> str:
    """The path of a chain's layers whatever their numbers; empty where they have none."""
    path = layers(graph, chain).layers[0].path
    return re.sub(r"\b\d+\b", "#", path) if path.rpartition(".")[2].isdigit() else ""


def _is_bent_conv(graph: Graph, chain: Chain) -> bool:
    """Whether a chain is of convolutions, as in a ResNet: only a nonlinearity reads each of its values."""
    words = {part.kind for part in _applied(chain)}
    return words == {"conv"} and all(_is_bent(graph, event.node) for event in chain.events)


def _without_heads(graph: Graph, found: Sequence[Chain]) -> list[Chain]:
    """The chains but those that only pool what came out of the one before."""
    result: list[Chain] = []
    for chain in found:
        single = len([event for event in chain.events if event.is_sum]) == 1
        if not (single and result and _is_pooled(graph, result[-1], chain)):
            result.append(chain)
    return result


def _is_pooled(graph: Graph, before: Chain, chain: Chain) -> bool:
    """Whether a chain is a head: an MLP on fewer tokens, which are means or answers to questions of the model's own."""
    start, last = graph[chain.events[0].base], graph[before.last]
    kinds = {part.kind for part in _applied(chain)}
    if not start.shape or start.size * 2 > last.size or kinds != {"mlp"}:
        return False
    way = graph.between(before.last, chain.start)
    return all(_asks_itself(graph, node) for node in way if _attends(graph, node))


def _attends(graph: Graph, node: int) -> bool:
    return graph.kind(node) == "attention" or bool(scores_of(graph, node))


def _asks_itself(graph: Graph, node: int) -> bool:
    """Whether the queries of an attention are the model's own, whatever it is given."""
    if graph.kind(node) == "attention":
        return not graph.given[graph.inputs(node)[0]]
    return all(not graph.given[graph.inputs(product)[0]] for product in scores_of(graph, node))


def _is_bent(graph: Graph, node: int) -> bool:
    """Whether a value is only read through a nonlinearity."""
    return bool(graph.users[node]) and all(graph.kind(user) == "pointwise" for user in graph.users[node])


def _applied(chain: Chain) -> list[Applied]:
    return [part for event in chain.events for part in sublayers_of(event)]


def sublayers_of(event: Event) -> list[Applied]:
    """The sublayers that an event runs."""
    return [part for part in walk(event.value) if isinstance(part, Applied)]


def _weights(graph: Graph, chain: Chain) -> set[tuple[str, int]]:
    """The matrices of a chain's sublayers, each with the module call that it is used in the container of."""
    return {
        (name, graph.program.calls[graph[one].call].parent)
        for part in _applied(chain)
        for one in part.nodes
        if graph.is_product(one)
        for name in graph.parameters(graph.inputs(one)[1])
    }
