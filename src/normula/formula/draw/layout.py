"""Here lives the layout of a drawing: each box at a column and a level, each wire as a path between them.

Levels count from the bottom. A level is a row of boxes, or a track between two rows on which wires go
sideways to the branches that start in the row above. Boxes stand in rows and wires turn on tracks, so a
wire can meet a box that is not its own only where it enters a sum from the side; there the rows give way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from normula.formula.draw.diagram import Node, diagram
from normula.formula.draw.lines import Lines
from normula.formula.tree import Tree
from normula.formula.words import STREAM

Point = tuple[int, int]
"""A column and a level; the skip path of x is column 0."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box at its place."""

    node: Node
    column: int
    level: int
    is_skip: bool


@dataclass(frozen=True, slots=True)
class Wire:
    """A path from box to box; `is_side` where it enters from the side, `is_skip` on a skip path."""

    points: tuple[Point, ...]
    source: int
    target: int
    minus: bool
    is_side: bool
    is_skip: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing without its measures.

    Attributes:
        boxes: all boxes; wires name them by their number here. Bends are boxes of no size.
        wires: their paths; wires of one value share what they have in common.
        dots: where a value goes more than one way.
        columns: all columns from left to right.
        tracks: for each level whether it is a track.
    """

    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    dots: tuple[Point, ...]
    columns: range
    tracks: tuple[bool, ...]


def layout(tree: Tree) -> Layout:
    """Where everything goes."""
    return _Layout(Lines(diagram(tree))).result()


class _Layout:
    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.nodes = lines.nodes
        self.chains = lines.chains()
        self.rules = lines.all_rules()
        self.order = _ordered(len(self.nodes), self.rules)
        self.sides = [
            (feed.source, number)
            for number, node in enumerate(self.nodes)
            for place, feed in enumerate(node.feeds)
            if place != lines.main[number]
        ]
        clash: tuple[int, int] | None = (0, 0)
        while clash:
            self.rows = self._rows()
            self.columns = self._columns()
            clash = self._clash()
            if clash:  # the later of the two moves up; as the order stays, this comes to an end
                first, second = sorted(clash, key=self.order.index)
                self.rules.add((first, second, 1))

    def result(self) -> Layout:
        levels = sorted(
            {(2 * row, 0) for row in self.rows}
            | {(2 * self.rows[head] - 1, self._turn(head)) for head in self._heads()}
        )
        self.level = {position: level for level, position in enumerate(levels)}
        wires = tuple(self._wires())
        boxes = tuple(
            Box(node, self.columns[number], self.level[2 * self.rows[number], 0], number in self.lines.skips)
            for number, node in enumerate(self.nodes)
        )
        columns = range(min(self.columns), max(self.columns) + 1)
        return Layout(boxes, wires, self._dots(wires), columns, tuple(position % 2 == 1 for position, _ in levels))

    def _main(self, number: int) -> int:
        """What feeds a box from below."""
        return self.nodes[number].feeds[self.lines.main[number]].source

    def _heads(self) -> list[int]:
        """The boxes at which a branch starts."""
        return [chain[0] for chain in self.chains if self.nodes[chain[0]].feeds]

    def _turn(self, head: int) -> int:
        """Which track below a row a branch takes: one for each value that turns there, from left to right."""
        row = self.rows[head]
        turning = {self._main(other) for other in self._heads() if self.rows[other] == row}
        return sorted(turning, key=lambda source: (self.columns[source], source)).index(self._main(head))

    def _rows(self) -> list[int]:
        """Each box as low as the rules allow; what does not depend on x waits for what reads it."""
        rows = [0] * len(self.nodes)
        above, below = defaultdict(list), defaultdict(list)
        for low, high, least in self.rules:
            above[low].append((high, least))
            below[high].append((low, least))
        for number in self.order:
            rows[number] = max((rows[low] + least for low, least in below[number]), default=0)
        top = max(rows)
        for number in reversed(self.order):
            if self.nodes[number].kind == "out":
                rows[number] = top
            elif self.nodes[number].feeds and self._waits(number):
                rows[number] = min((rows[high] - least for high, least in above[number]), default=rows[number])
        return rows

    def _waits(self, number: int) -> bool:
        known = number < len(self.lines.reached)
        return known and STREAM not in self.lines.reached[number] and number not in self.lines.spine

    def _columns(self) -> list[int]:
        """Each line in a column of its own while it lives, streams on the left of x, branches on their right."""
        chain_of = {number: i for i, chain in enumerate(self.chains) for number in chain}
        spans = [self._span(chain) for chain in self.chains]
        branches = defaultdict(list)
        roots = []
        for i, chain in enumerate(self.chains):
            if self.nodes[chain[0]].feeds:
                branches[chain_of[self._main(chain[0])]].append(i)
            else:
                roots.append(i)
        placed: dict[int, int] = {}

        def place(i: int, least: int) -> None:
            column = least
            while any(placed[j] == column and _overlap(spans[i], spans[j]) for j in placed):
                column += 1
            placed[i] = column
            for branch in sorted(branches[i], key=lambda j: (spans[j][1], j)):
                place(branch, column + 1)

        least, start = 0, 0
        for root in sorted(roots, key=lambda i: (self.nodes[self.chains[i][0]].lines == (STREAM,), -i)):
            start = least  # in the end, the column of x
            place(root, least)
            least = max(placed.values()) + 1
        return [placed[chain_of[number]] - start for number in range(len(self.nodes))]

    def _span(self, chain: list[int]) -> tuple[int, int]:
        """The first and the last place that a line takes up: rows are even, what is between them odd."""
        first, last = chain[0], chain[-1]
        leaves = [
            2 * self.rows[number] - (self.lines.main[number] == place) for number, place in self.lines.exits(last)
        ]
        return 2 * self.rows[first] - bool(self.nodes[first].feeds), max([2 * self.rows[last], *leaves])

    def _clash(self) -> tuple[int, int] | None:
        """Two boxes that must not share a row: a wire enters one of them through the other, or through its wire."""
        for source, target in self.sides:
            span = sorted((self.columns[source], self.columns[target]))
            for number in range(len(self.nodes)):
                between = span[0] <= self.columns[number] <= span[1] and number != target
                if between and self.rows[number] == self.rows[target] and self.nodes[number].kind != "bend":
                    return number, target
            for other_source, other in self.sides:
                other_span = sorted((self.columns[other_source], self.columns[other]))
                apart = source == other_source or self.rows[other] != self.rows[target]
                if not apart and span[0] <= other_span[1] and other_span[0] <= span[1]:
                    return other, target
        return None

    def _wires(self) -> list[Wire]:
        wires = []
        for target, node in enumerate(self.nodes):
            for place, feed in enumerate(node.feeds):
                source, is_side = feed.source, place != self.lines.main[target]
                start = self.columns[source], self.level[2 * self.rows[source], 0]
                end = self.columns[target], self.level[2 * self.rows[target], 0]
                follows = self.lines.following.get(source) == target and not is_side
                if follows:
                    corners = []
                elif is_side:
                    corners = [(start[0], end[1])]
                else:
                    track = self.level[2 * self.rows[target] - 1, self._turn(target)]
                    corners = [(start[0], track), (end[0], track)]
                skip = follows and {source, target} <= self.lines.skips
                wires.append(Wire((start, *corners, end), source, target, feed.minus, is_side, skip))
        return wires

    def _dots(self, wires: tuple[Wire, ...]) -> tuple[Point, ...]:
        """The corners of each value's wires from which it goes on in more than one direction."""
        values = defaultdict(list)
        for wire in wires:
            values[self._origin(wire.source)].append(wire)
        dots = set()
        for several in values.values():
            for corner in {point for wire in several for point in wire.points[1:-1]}:
                steps = [step for wire in several for step in pairwise(wire.points)]
                if len({way for low, high in steps for way in _ways(corner, low, high)}) > 2:
                    dots.add(corner)
        return tuple(sorted(dots))

    def _origin(self, number: int) -> int:
        return self._origin(self._main(number)) if self.nodes[number].kind == "bend" else number


def _ordered(count: int, rules: set[tuple[int, int, int]]) -> list[int]:
    """All boxes, each after those that must stand below it."""
    waiting = {number: {low for low, high, _ in rules if high == number} for number in range(count)}
    order: list[int] = []
    while waiting:
        number = min(number for number, below in waiting.items() if below <= set(order))
        order.append(number)
        del waiting[number]
    return order


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _ways(point: Point, start: Point, end: Point) -> list[Point]:
    """The directions in which a straight piece of wire leaves a point on it."""
    low, high = sorted((start, end))
    on_it = low[0] <= point[0] <= high[0] and low[1] <= point[1] <= high[1]
    way = (int(high[0] > low[0]), int(high[1] > low[1]))
    backward = [(-way[0], -way[1])] if on_it and point != low else []
    return backward + ([way] if on_it and point != high else [])
