"""A drawing in box characters, for a terminal with a font of one width; the skip path is a heavy line."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from normula.formula.draw.diagram import Node
from normula.formula.draw.layout import Box, Layout, Wire, layout
from normula.formula.formula import Formula

Cell = tuple[int, int]
"""A column of characters from the left, a line from the bottom."""

_UP, _RIGHT, _DOWN, _LEFT = range(4)
_STROKES: Final[dict[tuple[int, ...], str]] = {
    (0, 1, 0, 1): "─",
    (1, 0, 1, 0): "│",
    (0, 1, 1, 0): "┌",
    (0, 0, 1, 1): "┐",
    (1, 1, 0, 0): "└",
    (1, 0, 0, 1): "┘",
    (1, 1, 1, 0): "├",
    (1, 0, 1, 1): "┤",
    (0, 1, 1, 1): "┬",
    (1, 1, 0, 1): "┴",
    (1, 1, 1, 1): "┼",
    (2, 0, 2, 0): "┃",
    (2, 1, 2, 0): "┠",
    (2, 0, 2, 1): "┨",
    (0, 1, 2, 1): "┰",
    (2, 1, 0, 1): "┸",
    (2, 1, 2, 1): "╂",
}
"""What a cell looks like whose line goes up, right, down and left: 0 not at all, 1 light, 2 heavy."""
_GAP: Final = 3
"""Between columns; an arrow and a minus fit in it."""
_NARROWEST: Final = 8
"""So that boxes with the usual words are alike."""


def terminal(formula: Formula) -> str:
    """A formula as a drawing.

        >>> print(terminal(Formula("x + f(norm(x))")))
        x'
        ┃
        ...

    Args:
        formula: what to draw.

    Returns:
        Lines of text without a line break at the end.
    """
    return _Canvas(layout(formula.tree)).text()


class _Canvas:
    def __init__(self, plan: Layout) -> None:
        self.plan = plan
        lowered = {wire.target for wire in plan.wires if wire.minus and not wire.is_side}
        self.sizes = [_size(box.node, number in lowered) for number, box in enumerate(plan.boxes)]
        self.x = self._columns()
        self.y = self._levels()
        self.strokes: dict[Cell, list[int]] = {}
        self.letters: dict[Cell, str] = {}
        for wire in plan.wires:
            self._wire(wire)
        for box, size in zip(plan.boxes, self.sizes, strict=True):
            self._box(box, size)
        for wire in plan.wires:
            self._end(wire)
        for column, level in plan.dots:
            cell = self.x[column], self.y[level]
            if all(self.strokes[cell]):  # a crossing looks like it
                self.letters[cell] = "●"

    def text(self) -> str:
        cells = self.strokes.keys() | self.letters.keys()
        left, right = min(x for x, _ in cells), max(x for x, _ in cells)
        low, high = min(y for _, y in cells), max(y for _, y in cells)
        lines = ["".join(self._character((x, y)) for x in range(left, right + 1)) for y in range(high, low - 1, -1)]
        return "\n".join(line.rstrip() for line in lines)

    def _character(self, cell: Cell) -> str:
        if cell in self.letters:
            return self.letters[cell]
        return _STROKES[tuple(self.strokes[cell])] if cell in self.strokes else " "

    def _columns(self) -> dict[int, int]:
        """Where the wires of each column run."""
        places, at = {}, 0
        for column in self.plan.columns:
            sizes = [size for size, box in zip(self.sizes, self.plan.boxes, strict=True) if box.column == column]
            places[column] = at + max((size.left for size in sizes), default=0)
            at = places[column] + max((size.right for size in sizes), default=0) + 1 + _GAP
        return places

    def _levels(self) -> list[int]:
        """The line of each level: tracks and plain rows take one line, boxes as many as they need."""
        places: list[int] = []
        above = 0
        for level, is_track in enumerate(self.plan.tracks):
            sizes = [size for size, box in zip(self.sizes, self.plan.boxes, strict=True) if box.level == level]
            below = max((size.down for size in sizes), default=0)
            bare = level > 0 and not (above or below or is_track or self.plan.tracks[level - 1])
            places.append(places[-1] + above + bare + 1 + below if places else below)
            above = max((size.up for size in sizes), default=0)
        return places

    def _at(self, point: tuple[int, int]) -> Cell:
        return self.x[point[0]], self.y[point[1]]

    def _stroke(self, start: Cell, end: Cell, weight: int = 1) -> None:
        """A straight line from one cell to another."""
        (x, y), (end_x, end_y) = min(start, end), max(start, end)
        forward, backward = (_RIGHT, _LEFT) if end_x > x else (_UP, _DOWN)
        while (x, y) != (end_x, end_y):
            self._mark((x, y), forward, weight)
            x, y = (x + 1, y) if end_x > x else (x, y + 1)
            self._mark((x, y), backward, weight)

    def _mark(self, cell: Cell, way: int, weight: int) -> None:
        ways = self.strokes.setdefault(cell, [0, 0, 0, 0])
        ways[way] = max(ways[way], weight)

    def _wire(self, wire: Wire) -> None:
        for start, end in pairwise(wire.points):
            self._stroke(self._at(start), self._at(end), 2 if wire.is_skip else 1)

    def _box(self, box: Box, size: _Size) -> None:
        x, y = self._at((box.column, box.level))
        if box.node.kind == "sum":
            self.letters[x, y] = "⊕"
        elif box.node.kind in ("in", "out"):
            self._write(x - size.left, y, box.node.lines[0])
        elif box.node.kind != "bend":
            left, right, low, high = x - size.left, x + size.right, y - size.down, y + size.up
            for row in range(low + 1, high):
                self._clear(left + 1, right - 1, row)
            self._cut(x, low, _UP)
            self._cut(x, high, _DOWN)
            for corner in ((left, high), (right, low)):
                self._stroke((left, low), corner)
                self._stroke(corner, (right, high))
            for row, line in enumerate(box.node.lines, start=1):
                self._write(x - (len(line) - 1) // 2, high - row, line)

    def _clear(self, left: int, right: int, y: int) -> None:
        for x in range(left, right + 1):
            self.strokes.pop((x, y), None)

    def _cut(self, x: int, y: int, way: int) -> None:
        """Let a wire end at the edge of its box."""
        if (x, y) in self.strokes:
            self.strokes[x, y][way] = 0

    def _write(self, x: int, y: int, text: str) -> None:
        self.letters |= {(x + i, y): letter for i, letter in enumerate(text)}

    def _end(self, wire: Wire) -> None:
        """The arrow into a sum from the side, and a minus where it is subtracted."""
        x, y = self._at(wire.points[-1])
        if wire.is_side:
            side = 1 if self._at(wire.points[-2])[0] > x else -1
            self.letters[x + side, y] = "◄" if side > 0 else "►"
            if wire.minus:
                self.letters[x + 2 * side, y] = "−"
        elif wire.minus:
            self.letters[x - 1, y - 1] = "−"


@dataclass(frozen=True, slots=True)
class _Size:
    """How many cells a box takes up on each side of the cell in which its wire would cross it."""

    left: int
    right: int
    down: int
    up: int


def _size(node: Node, lowered: bool) -> _Size:
    """The size of a box; one that subtracts what enters from below has the sign on a line of its own."""
    width = max((len(line) for line in node.lines), default=1)
    if node.kind in ("in", "out", "sum", "bend"):
        return _Size((width - 1) // 2, width // 2, int(lowered), 0)
    width, height = max(width + 4, _NARROWEST), len(node.lines) + 2
    return _Size((width - 1) // 2, width // 2, (height - 1) // 2, height // 2)
