"""Here lives Chain: the values that a residual stream has one after another, each made from those before."""

from __future__ import annotations

from dataclasses import dataclass

from normula.read.branch import Branches
from normula.read.expression import Applied, Expression, Normed, Stream, walk
from normula.read.graph import Graph
from normula.read.stream import Residual, terms_of
from normula.read.strip import step_down


@dataclass(frozen=True, slots=True)
class Event:
    """The stream takes a new value.

    Attributes:
        node: the new value.
        base: the value before it.
        value: what the new one is made of.
        is_sum: whether a sublayer's output is added; else the stream is normed, scaled or replaced.
        root: the value before it in the layout that it is read in.
    """

    node: int
    base: int
    value: Expression
    is_sum: bool
    root: int = -1


@dataclass(frozen=True, slots=True)
class Chain:
    """One residual stream.

    Attributes:
        start: what it was made from, before any norm that comes first.
        before: what happens before its first sum.
        events: from the first sum to the last.
        after: the norms that follow the last sum.
    """

    start: int
    before: tuple[Event, ...]
    events: tuple[Event, ...]
    after: tuple[Event, ...]

    @property
    def last(self) -> int:
        """The value after the last sum."""
        return self.events[-1].node


def chains(graph: Graph, found: dict[int, Residual], skips: frozenset[int]) -> tuple[Chain, ...]:
    """The residual streams, in the order in which they begin."""
    top = [one for one in found.values() if one.outer is None]
    before = {one.node: _last_before(graph, one, found) for one in top}
    after: dict[int, list[int]] = {}
    for node, (previous, _) in before.items():
        if previous is not None:
            after.setdefault(previous, []).append(node)
    result = []
    for one in top:
        previous, _ = before[one.node]
        if previous is not None and min(after[previous]) == one.node:
            continue
        nodes = [one.node]
        while nodes[-1] in after:
            nodes.append(min(after[nodes[-1]]))
        result.append(_chain(graph, [found[node] for node in nodes], before[one.node][1], found, skips))
    return tuple(result)


def _last_before(graph: Graph, one: Residual, found: dict[int, Residual]) -> tuple[int | None, int]:
    """The sum whose value a residual sum carries on, if any, and the last node on the way to it."""
    node = one.root
    while node not in found or found[node].outer != one.outer:
        step = step_down(graph, node)
        if step is None or step.how == "batchnorm":
            return None, node
        node = step.below
    return node, node


def _chain(graph: Graph, sums: list[Residual], start: int, found: dict[int, Residual], skips: frozenset[int]) -> Chain:
    known: list[int] = [start]
    first, root = _link(graph, start, sums[0].root)
    known += [event.node for event in first]
    events: list[Event] = []
    for one in sums:
        if one is not sums[0]:
            link, root = _link(graph, known[-1], one.root)
            events += link
            known += [event.node for event in link]
        base = known[-1]
        reader = Branches(graph, [*known, root] if root != base else known, found)
        events.append(Event(one.node, base, reader.sum(one.node, one.terms), True, root))
        known.append(one.node)
    return Chain(start, first, tuple(events), _after(graph, sums[-1].node, skips))


def _link(graph: Graph, base: int, root: int) -> tuple[tuple[Event, ...], int]:
    """How the value that is carried comes from the one before: an event for each norm, and one for what else is done.

    The carried value may be another layout of the last one: it is returned too.
    """
    marks = [root]
    given: dict[int, int] = {}
    node = root
    while node != base:
        step = step_down(graph, node)
        assert step is not None
        if step.how == "norm":
            given[node] = step.below
            marks += [one for one in (node, step.below) if one not in (marks[-1], base)]
        node = step.below
    events: list[Event] = []
    known = base
    for node in reversed(marks):
        if node != known:
            value = Branches(graph, [known], {}).read(node)
            if value != Stream(known):
                laid_out = isinstance(value, Normed) and value.value == Stream(known)
                events.append(Event(node, known, value, False, given.get(node, -1) if laid_out else -1))
                known = node
    return tuple(events), root


def _after(graph: Graph, last: int, skips: frozenset[int]) -> tuple[Event, ...]:
    """The norms of a stream's last value, one after another, and learned factors between them.

    Where the stream ends in a sum that skips all its layers, the norms of that.
    """
    events: list[Event] = []
    node: int | None = last
    while node is not None:
        found = _next_step(graph, node)
        if found is None and not events:
            node = next((skip for skip in sorted(skips) if skip > node and graph.between(node, skip)), None)
            found = None if node is None else _next_step(graph, node)
        if found is not None:
            assert node is not None
            events.append(Event(found, node, Branches(graph, [node], {}).read(found), False))
        node = found
    return tuple(events)


def _next_step(graph: Graph, node: int) -> int | None:
    """The first norm of a value, or of a part of it, or else its sum with itself or product with a learned factor."""
    stack, seen = [node], {node}
    found: dict[str, list[int]] = {"norm": [], "sum": [], "gain": []}
    while stack:
        one = stack.pop()
        for user in graph.users[one]:
            if user in seen:
                continue
            seen.add(user)
            step = step_down(graph, user)
            if step is not None and step.below == one:
                if step.how in found:
                    found[step.how].append(user)
                elif step.how in ("view", "number", "shift"):
                    stack.append(user)
            elif graph.kind(user) == "join" and graph[user].shape[-1:] == graph[node].shape[-1:]:
                stack.append(user)  # with other tokens
            elif _adds_only(graph, user, node):
                found["sum"].append(user)
    return next((min(several) for several in found.values() if several), None)


def _adds_only(graph: Graph, number: int, node: int) -> bool:
    """Whether a value is a sum of nothing but another one, scaled."""
    if graph.kind(number) not in ("add", "sub"):
        return False
    flowing = [term.node for term in terms_of(graph, number) if not graph.is_constant(term.node)]
    for one in flowing:
        while one != node and (step := step_down(graph, one)) is not None and step.below >= node:
            one = step.below
        if one != node:
            return False
    return len(flowing) > 1


def nodes_of(graph: Graph, event: Event) -> list[int]:
    """The nodes that say in which module an event happens: its norms, its products, and itself if it has none."""
    found = []
    for part in walk(event.value):
        if isinstance(part, Normed):
            found.append(part.norm)
        elif isinstance(part, Applied):
            found += [one for one in part.nodes if graph.is_mixing(one)]
    return found or [event.node]
