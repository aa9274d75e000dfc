"""Where layers stand in a program: rows of modules with one index in their paths, and the values that cross between.

    (x, d) -> layer 0 -> (x, d) -> layer 1 -> (x, d) -> ...

What is computed in no module of a row, between two of its layers, may belong to either: all cuts are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from normula.read.graph import Graph

LONGEST_GAP: Final = 12
"""How many values may be computed between the modules of two layers."""

_INDEX: Final = re.compile(r"((?:[^.\d][^.]*\.)*?(?:[A-Za-z]\w*_)?)(\d+)(?:\.(\d+))?(?=\.|\Z)")
"""A path up to the number of a layer: `layers.3`, `Block_3`, and `layers_1.3` of a list in several parts."""


@dataclass(frozen=True, slots=True)
class Row:
    """Layers one after another: what the paths of each begin with, and its first and last node."""

    paths: tuple[str, ...]
    layers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A row cut into layers.

    Attributes:
        ends: the last node before the first layer, and of each layer.
        live: for each of these, the values that flow from there on, without those that never change.
        fixed: the values that flow into every layer and are made before the first.
    """

    ends: tuple[int, ...]
    live: tuple[tuple[int, ...], ...]
    fixed: tuple[int, ...]


def rows(graph: Graph) -> list[Row]:
    """The rows of layers of a program, in order; a list of norms is none."""
    mixing: set[str] = set()
    places: dict[str, dict[str, tuple[int, int]]] = {}
    for number in range(len(graph)):
        if graph.alive[number] and not graph.is_constant(number) and (found := _INDEX.match(graph.path(number))):
            layers = places.setdefault(found[1], {})
            first, _ = layers.get(found[0], (number, number))
            layers[found[0]] = first, number
            mixing |= {found[0]} if graph.is_mixing(number) else set()
    result: list[Row] = []
    for layers in sorted(places.values(), key=lambda one: min(one.values())):
        row = Row(tuple(layers), tuple(layers.values()))
        if result and row.layers[0][0] < result[-1].layers[-1][1]:
            row = _merged(result.pop(), row)
        result.append(row)
    return [row for row in result if len(row.layers) > 1 and mixing.issuperset(row.paths)]


def _merged(one: Row, other: Row) -> Row:
    """Two lists whose modules take turns, such as one of attention and one of MLPs; else the first."""
    if len(one.layers) != len(other.layers):
        return one
    pairs = zip(one.layers, other.layers, strict=True)
    return Row(one.paths, tuple((min(a, c), max(b, d)) for (a, b), (c, d) in pairs))


def cuts(graph: Graph, row: Row) -> Iterator[Cut]:
    """The ways to cut a row into layers; none where its modules do not take turns."""
    firsts, lasts = [first for first, _ in row.layers], [last for _, last in row.layers]
    if any(last >= first for last, first in zip(lasts, firsts[1:], strict=False)):
        return
    flowing = [n for n in range(len(graph)) if graph.alive[n] and not graph.is_constant(n)]
    gaps = [[n for n in flowing if last < n < first] for last, first in zip(lasts, firsts[1:], strict=False)]
    before, after = [n for n in flowing if n < firsts[0]], [n for n in flowing if n > lasts[-1]]
    shortest = min(map(len, gaps))
    if shortest > LONGEST_GAP:
        return
    for taken in range(shortest + 1):
        left = len(gaps[0]) - taken
        if left > len(before) or taken > len(after):
            continue
        begin = before[-left] - 1 if left else firsts[0] - 1
        ends = [begin]
        ends += [gap[taken - 1] if taken else last for gap, last in zip([*gaps, after], lasts, strict=True)]
        yield _cut(graph, flowing, ends)


def _cut(graph: Graph, flowing: Sequence[int], ends: Sequence[int]) -> Cut:
    crossing = _crossing(graph, flowing, ends)
    fixed = set(crossing[0]).intersection(*crossing[:-1])
    if not crossing[-1]:  # nothing comes after the last layer
        crossing[-1] = [node for node in sorted({*graph.program.outputs}) if ends[-2] < node <= ends[-1]]
    live = tuple(tuple(node for node in values if node not in fixed) for values in crossing)
    return Cut(tuple(ends), live, tuple(sorted(fixed)))


def _crossing(graph: Graph, flowing: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """For each end, the values made up to there that are read later."""
    found: list[list[int]] = []
    held: dict[int, int] = {}
    ahead = list(ends)
    for number in (*flowing, len(graph)):
        while ahead and number > ahead[0]:
            end = ahead.pop(0)
            held = {node: last for node, last in held.items() if last > end}
            found.append(sorted(held))
        if number < len(graph) and graph.users[number]:
            held[number] = graph.users[number][-1]
    return found + [[] for _ in ahead]
