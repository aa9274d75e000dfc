"""Where one layer ends and the next begins.

What is computed does not say it: `norm(x + f(x))` with a norm before the first layer is `n = norm(x); n + f(n)` with
one after the last. So layers are taken as the model has them: calls of modules of one class side by side, or one
index in every path; without either, the shortest period.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from normula.read.chain import Chain, Event, nodes_of
from normula.read.expression import Applied, Scaled, Stream, walk
from normula.read.graph import Graph
from normula.read.spell import spelled
from normula.read.strip import step_down


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what happens to the stream in it, and its module: path, or what the paths begin with, and call."""

    events: tuple[Event, ...]
    path: str
    call: int = -1


@dataclass(frozen=True, slots=True)
class Layers:
    """A chain cut into layers; what comes before the first and after the last belongs to none."""

    before: tuple[Event, ...]
    layers: tuple[Layer, ...]
    after: tuple[Event, ...]


@dataclass(slots=True)
class _Unit:
    """Sums that one module call holds; the call is -1 where no module holds them, but modules side by side do."""

    sums: list[Event]
    call: int
    path: str
    index: int | None = None
    side_by_side: tuple[str, ...] = ()


def layers(graph: Graph, chain: Chain, kinds: frozenset[int] = frozenset()) -> Layers:
    """The layers of a chain; `kinds` are the classes of modules that are layers of other chains."""
    chain, stem = _without_stem(graph, chain)
    sums = [event for event in chain.events if event.is_sum]
    units = _units(graph, sums, kinds)
    owner = {id(event): place for place, unit in enumerate(units) for event in unit.sums}
    held: list[list[Event]] = [[] for _ in units]
    place = 0
    for at, event in enumerate(chain.events):
        if event.is_sum:
            place = owner[id(event)]
        else:
            following = owner[id(next(later for later in chain.events[at:] if later.is_sum))]
            place = following if following == place or _inside(graph, event, units[following]) else place
        held[place].append(event)
    before, leading = _split_before(graph, chain.before, units[0])
    tail = list(chain.after)
    ends_in_norm = len(sums) == 1 or any(not event.is_sum for event in chain.events)
    if len(units) > 1 or ends_in_norm:
        while tail and _inside(graph, tail[0], units[-1]):
            held[-1].append(tail.pop(0))
            if len(units) == 1:
                before, leading = [*before, *leading], []
    held[0] = [*leading, *held[0]]
    held[-1] += _scaling(graph, held)
    before, held, tail = _evened(graph, list(before), held, tail)
    return Layers(
        (*stem, *before), tuple(Layer(tuple(e), u.path, u.call) for e, u in zip(held, units, strict=True)), tuple(tail)
    )


def _without_stem(graph: Graph, chain: Chain) -> tuple[Chain, tuple[Event, ...]]:
    """The chain from the first of its layers on: a sum outside their modules before them is part of the embedding."""
    sums = [event for event in chain.events if event.is_sum]
    if len(sums) < 3 or set(_words(sums[0])) != {"conv"}:
        return chain, ()
    depth = len(_common([_scope(graph, event) for event in sums[1:]]))
    rest = _groups(sums[1:], [_scope(graph, event) for event in sums[1:]], depth)
    scope = _scope(graph, sums[0])
    if rest is None or any(scope[: depth + 1] == inner[0][: depth + 1] for _, _, inner in rest):
        return chain, ()
    if len(
        {graph.program.calls[call].kind for call, _, _ in rest} & {graph.program.calls[scope[depth]].kind}
        if len(scope) > depth
        else ()
    ):
        return chain, ()
    second = chain.events.index(sums[1])
    links = chain.events[1:second]
    return Chain(chain.start, tuple(links), chain.events[second:], chain.after), (*chain.before, chain.events[0])


def _scaling(graph: Graph, held: Sequence[Sequence[Event]]) -> list[Event]:
    """The number that the last value of the stream is multiplied by, where the layers before end in it too."""
    before = held[-2][-1].value if len(held) > 1 else None
    last = held[-1][-1]
    if not (isinstance(before, Scaled) and isinstance(before.value, Stream) and last.is_sum):
        return []
    for user in graph.users[last.node]:
        step = step_down(graph, user)
        if step is not None and step.how == "number" and step.factor == before.factor:
            return [Event(user, last.node, Scaled(step.factor, Stream(last.node)), False)]
    return []


def _words(event: Event) -> list[str]:
    return [part.kind for part in walk(event.value) if isinstance(part, Applied)]


def _evened(
    graph: Graph, before: list[Event], held: list[list[Event]], tail: list[Event]
) -> tuple[list[Event], list[list[Event]], list[Event]]:
    """The first layer without a norm that no other layer begins with; the last with one that the others end with."""
    if len(held) > 1:
        if not held[0][0].is_sum and all(events[0].is_sum for events in held[1:]):
            shorter = held[0][1:]
            if spelled(graph, shorter) in {spelled(graph, events) for events in held[1:]}:
                before, held[0] = [*before, held[0][0]], shorter
        if tail and spelled(graph, held[-1]) != spelled(graph, held[-2]):
            longer = [*held[-1], tail[0]]
            if spelled(graph, longer) == spelled(graph, held[-2]):
                held[-1], tail = longer, tail[1:]
    return before, held, tail


def _split_before(graph: Graph, before: Sequence[Event], unit: _Unit) -> tuple[list[Event], list[Event]]:
    outside = [event for event in before if not _inside(graph, event, unit)]
    return outside, [event for event in before if event not in outside]


def _inside(graph: Graph, event: Event, unit: _Unit) -> bool:
    """Whether an event between sums belongs to a unit's module."""
    nodes = nodes_of(graph, event)
    if unit.side_by_side:
        return all(graph.path(node).startswith(tuple(f"{path}." for path in unit.side_by_side)) for node in nodes)
    if unit.call >= 0:
        return all(unit.call in graph.calls(node) for node in nodes)
    if unit.index is not None:
        return all(_index(graph, node, "") == unit.index for node in nodes)
    return False


def _units(graph: Graph, sums: Sequence[Event], kinds: frozenset[int]) -> list[_Unit]:
    scopes = [_scope(graph, event) for event in sums]
    units = (
        _by_calls(graph, list(sums), scopes, kinds)
        or _by_index(graph, list(sums), scopes)
        or _by_period(graph, list(sums))
    )
    if units is None:
        call = _common(scopes)[-1]
        units = [_Unit(list(sums), call, graph.program.calls[call].path)]
    return _joined(graph, units)


def _scope(graph: Graph, event: Event) -> tuple[int, ...]:
    """The module calls that all of an event happens in, outermost first."""
    return _common([graph.calls(node) for node in (*nodes_of(graph, event), event.node)])


def _common(scopes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    shortest = min(scopes, key=len)
    for place, call in enumerate(shortest):
        if any(scope[place] != call for scope in scopes):
            return shortest[:place]
    return shortest


def _by_calls(
    graph: Graph, sums: list[Event], scopes: list[tuple[int, ...]], known: frozenset[int]
) -> list[_Unit] | None:
    """Units by the module calls side by side that hold the sums; None where a sum stands in no call of its own."""
    common = _common(scopes)
    if len(sums) == 1:
        return [_Unit(sums, common[-1], graph.program.calls[common[-1]].path)]
    groups = _groups(sums, scopes, len(common))
    if groups is None:
        return None
    kinds = [graph.program.calls[call].kind for call, _, _ in groups]
    if len(set(kinds)) == len(kinds) and not set(kinds) & known:
        return [_Unit(sums, common[-1], graph.program.calls[common[-1]].path)]
    units = []
    for call, events, inner in groups:
        units += _divided(graph, call, events, inner)
    return units


def _groups(
    sums: list[Event], scopes: list[tuple[int, ...]], depth: int
) -> list[tuple[int, list[Event], list[tuple[int, ...]]]] | None:
    """Sums that follow one another in one call at a depth, with the call."""
    groups: list[tuple[int, list[Event], list[tuple[int, ...]]]] = []
    for event, scope in zip(sums, scopes, strict=True):
        if len(scope) <= depth:
            return None
        if not groups or groups[-1][0] != scope[depth]:
            groups.append((scope[depth], [], []))
        groups[-1][1].append(event)
        groups[-1][2].append(scope)
    return groups


def _divided(graph: Graph, call: int, sums: list[Event], scopes: list[tuple[int, ...]]) -> list[_Unit]:
    """A call as the layers inside it, where two of one class that do the same stand side by side; else as one."""
    common = _common(scopes)
    whole = [_Unit(sums, call, graph.program.calls[call].path)]
    groups = _groups(sums, scopes, len(common)) if len(sums) > 1 else None
    if groups is None:
        return whole
    kinds = [graph.program.calls[inner].kind for inner, _, _ in groups]
    texts = [spelled(graph, events) for _, events, _ in groups]
    alike = any(kinds[i] == kinds[i + 1] and texts[i] == texts[i + 1] for i in range(len(groups) - 1))
    if not all(graph.program.calls[inner].path.rpartition(".")[2].isdigit() for inner, _, _ in groups):
        return whole  # not a list of layers
    if not alike and len(set(kinds)) == 1 and len(groups) == len(sums):
        return _by_period(graph, sums) or whole
    if not alike:
        return whole
    return [unit for inner, events, inside in groups for unit in _divided(graph, inner, events, inside)]


def _joined(graph: Graph, units: list[_Unit]) -> list[_Unit]:
    """Units of one list inside a list, each with a sublayer of its own, are one layer."""
    result: list[_Unit] = []
    for unit in units:
        last = result[-1] if result else None
        if last is not None and last.path and unit.path and _same_row(last.path, unit.path):
            texts = [spelled(graph, [event]) for event in last.sums]
            if len(unit.sums) == 1 and spelled(graph, unit.sums) not in texts and len(texts) == len(set(texts)):
                result[-1] = _beside([last, unit], _row(unit.path))
                continue
        result.append(unit)
    return [unit for row in _rows(result) for unit in _by_repetition(graph, row)]


def _beside(units: Sequence[_Unit], path: str) -> _Unit:
    """One unit of several that stand side by side."""
    sums = [event for unit in units for event in unit.sums]
    return _Unit(sums, -1, path, None, tuple(one for unit in units for one in unit.side_by_side or (unit.path,)))


def _by_repetition(graph: Graph, row: list[_Unit]) -> list[_Unit]:
    """Sublayers that come again in one order, each in a module of its own: a layer is one round, of mixers and MLPs."""
    if len(row) < 4 or any(len(unit.sums) > 1 or not unit.path for unit in row):
        return row
    texts = [spelled(graph, unit.sums) for unit in row]
    words = [tuple(_words(unit.sums[0])) for unit in row]
    for period in range(2, len(row) // 2 + 1):
        kinds = {*words[:period]}
        whole = len(row) % period == 0 and texts == texts[:period] * (len(row) // period)
        if whole and len(kinds) > 1 and kinds & {("mlp",), ("moe",)}:
            return [_beside(row[i : i + period], row[i].path) for i in range(0, len(row), period)]
    return row


def _rows(units: list[_Unit]) -> list[list[_Unit]]:
    """Units that follow one another in one list."""
    rows: list[list[_Unit]] = []
    for unit in units:
        if rows and _row(rows[-1][-1].path) == _row(unit.path):
            rows[-1].append(unit)
        else:
            rows.append([unit])
    return rows


def _row(path: str) -> str:
    return path.rpartition(".")[0]


def _same_row(one: str, other: str) -> bool:
    """Whether two paths differ in the last index only, in a list that is itself in a list."""
    twice = re.compile(r"(.*\.\d+)\.\d+\Z")
    first, second = twice.match(one), twice.match(other)
    if second is None:
        return False
    return (first is not None and first[1] == second[1]) or one == second[1]


def _by_index(graph: Graph, sums: list[Event], scopes: list[tuple[int, ...]]) -> list[_Unit] | None:
    """Units by the first index in the paths of the modules that a sum was made in."""
    root = graph.program.calls[_common(scopes)[-1]].path
    units: list[_Unit] = []
    for event in sums:
        found = {_index(graph, node, root) for node in nodes_of(graph, event)}
        index = found.pop() if len(found) == 1 else None
        if index is None:
            return None
        if not units or units[-1].index != index:
            units.append(_Unit([], -1, f"{root}.{index}".lstrip("."), index))
        units[-1].sums.append(event)
    return units if len(units) > 1 else None


def _index(graph: Graph, node: int, root: str) -> int | None:
    """The first index in a node's path below a root; a norm that is called in the open says it by its parameters."""
    path = graph.path(node)
    inner = path.removeprefix(root).lstrip(".")
    return next((int(part) for part in inner.split(".") if part.isdigit()), None)


def _by_period(graph: Graph, sums: list[Event]) -> list[_Unit] | None:
    """Units by the shortest period of what the sums do."""
    texts = [spelled(graph, [event]) for event in sums]
    for period in range(1, len(texts)):
        if len(texts) % period == 0 and texts == texts[:period] * (len(texts) // period):
            return [_Unit(sums[i : i + period], -1, "") for i in range(0, len(sums), period)]
    return None
