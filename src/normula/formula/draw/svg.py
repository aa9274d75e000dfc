"""A drawing as SVG text: one element that stands alone or in a page, in light and in dark."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from normula.formula.draw.diagram import Node
from normula.formula.draw.layout import Box, Layout, Wire, layout
from normula.formula.draw.theme import CLASS, COLOURS, FONT, paint, style
from normula.formula.formula import Formula

# All lengths are in pixels at native size.
_FONT_SIZE: Final = {False: 13, True: 11}
"""Of the first line in a box, and of the others."""
_CHARACTER: Final = 0.62
"""Width of a character by font size; the fonts asked for have 0.60 or 0.602."""
_RADIUS: Final = 10
_BOX: Final = (64, 30)
"""The smallest box; what most words fit in, so that boxes are alike."""
_LINE: Final = 14
_GAP: Final = {"columns": 22, "rows": 20, "track": 13}
_MARGIN: Final = 14
_NARROWEST: Final = 200
"""So that small drawings side by side in a page have one scale."""
_STROKE: Final = {False: 1.6, True: 5}
_ARROW: Final = {False: (8, 3.5), True: (10, 6)}
"""Length and half width; like the stroke, by whether it is on the skip path."""


def svg(formula: Formula, *, title: str | None = None) -> str:
    """A formula as a drawing.

        >>> svg(Formula("x + f(norm(x))"), title="Pre-LN")[:42]
        '<svg xmlns="http://www.w3.org/2000/svg" cl'

    Colours follow the reader's light or dark setting. A page sets its own by the custom properties
    `--normula-paper`, `-ink`, `-skip`, and `-norm`, `-sublayer`, `-gain`, each with an `-edge`. Boxes with
    parameters carry `data-index`, their indices in `formula.sites`.

    Args:
        formula: what to draw.
        title: what the drawing is called; the formula's text if None.

    Returns:
        One `<svg>` element that needs nothing else.
    """
    plan = layout(formula.tree)
    place = _Placed(plan)
    width, height = place.size
    groups = [
        *_wires(plan, place, on_skip=False),
        *_wires(plan, place, on_skip=True),
        *(_dot(place, point) for point in plan.dots),
        *(_box(place, box) for box in plan.boxes if box.node.kind != "bend"),
        *(_minus(place, wire) for wire in plan.wires if wire.minus),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" role="img" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" font-family={quoteattr(FONT)} text-anchor="middle">',
            f"<title>{escape(title or formula.text)}</title>",
            f"<desc>{escape(formula.text)}. {escape(formula.words)}</desc>",
            f"<style>{style()}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="6" fill="{COLOURS["paper"][0]}"/>',
            *groups,
            "</svg>",
            "",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Measure:
    """Half the width and half the height of a box."""

    x: float
    y: float


class _Placed:
    """Columns and levels in pixels."""

    def __init__(self, plan: Layout) -> None:
        self.plan = plan
        self.measures = [_measure(box.node) for box in plan.boxes]
        at = float(_MARGIN)
        self.x: dict[int, float] = {}
        for column in plan.columns:
            half = max(
                (m.x for m, box in zip(self.measures, plan.boxes, strict=True) if box.column == column), default=0
            )
            self.x[column] = at + half
            at += 2 * half + _GAP["columns"]
        right = at - _GAP["columns"] + _MARGIN
        shift = max(0.0, (_NARROWEST - right) / 2)
        self.x = {column: x + shift for column, x in self.x.items()}
        heights = self._heights()
        bottom = heights[-1] + self._half(len(heights) - 1) + _MARGIN
        self.y = [bottom - height for height in heights]
        self.size = round(right + 2 * shift), round(bottom + _MARGIN + self._half(0))

    def _heights(self) -> list[float]:
        """Of each level above the lowest."""
        heights = [0.0]
        for low, high in pairwise(range(len(self.plan.tracks))):
            gap = _GAP["track" if self.plan.tracks[low] or self.plan.tracks[high] else "rows"]
            arrow = _ARROW[True][0] if self.plan.tracks[low] and not self.plan.tracks[high] else 0
            heights.append(heights[-1] + self._half(low) + gap + arrow + self._half(high))
        return heights

    def _half(self, level: int) -> float:
        boxes = zip(self.measures, self.plan.boxes, strict=True)
        return max((measure.y for measure, box in boxes if box.level == level), default=0)

    def at(self, point: tuple[int, int]) -> tuple[float, float]:
        return self.x[point[0]], self.y[point[1]]


def _measure(node: Node) -> _Measure:
    match node.kind:
        case "bend":
            return _Measure(0, 0)
        case "sum":
            return _Measure(_RADIUS, _RADIUS)
        case "in" | "out":
            return _Measure(max(_RADIUS, _text_width(node) / 2), 9)
    width = _text_width(node) + 16
    if node.kind in ("factor", "gain"):
        return _Measure(width / 2, (_LINE * len(node.lines) + 8) / 2)
    return _Measure(max(_BOX[0], width) / 2, max(_BOX[1], _LINE * len(node.lines) + 10) / 2)


def _text_width(node: Node) -> float:
    return max(len(line) * _CHARACTER * _FONT_SIZE[i > 0] for i, line in enumerate(node.lines))


def _wires(plan: Layout, place: _Placed, *, on_skip: bool) -> list[str]:
    """All wires, or all of the skip paths, which go over the others."""
    name = "skip" if on_skip else "ink"
    extra = " skip" if on_skip else ""
    paths, heads = [], []
    for wire in plan.wires:
        if wire.is_skip == on_skip:
            path, head = _wire(plan, place, wire)
            paths.append(path)
            heads.append(head)
    if not paths:
        return []
    colour = COLOURS[name][0]
    return [
        f'<path class="wire{extra}" fill="none" stroke="{colour}" stroke-width="{_STROKE[on_skip]}"'
        f' d="{"".join(paths)}"/>',
        f'<path class="mark{extra}" fill="{colour}" d="{"".join(heads)}"/>',
    ]


def _wire(plan: Layout, place: _Placed, wire: Wire) -> tuple[str, str]:
    """The path of a wire from edge to edge, and its arrowhead."""
    points = [place.at(point) for point in wire.points]
    (x, y), (end_x, end_y) = points[0], points[-1]
    points[0] = x, y - place.measures[wire.source].y
    target = place.measures[wire.target]
    side = 1 if points[-2][0] > end_x else -1
    tip = (end_x + side * target.x, end_y) if wire.is_side else (end_x, end_y + target.y)
    length, half = _ARROW[wire.is_skip]
    if plan.boxes[wire.target].node.kind == "bend":
        length = half = 0
    points[-1] = (tip[0] + side * length, tip[1]) if wire.is_side else (tip[0], tip[1] + length)
    steps = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for (from_x, _), (to_x, to_y) in pairwise(points):
        steps.append(f"V{_n(to_y)}" if from_x == to_x else f"H{_n(to_x)}")
    x, y = points[-1]
    wings = (x, y - half, x, y + half) if wire.is_side else (x - half, y, x + half, y)
    head = f"M{_n(tip[0])} {_n(tip[1])}L{' '.join(map(_n, wings))}Z" if length else ""
    return "".join(steps), head


def _dot(place: _Placed, point: tuple[int, int]) -> str:
    x, y = place.at(point)
    return f'<circle class="mark" fill="{COLOURS["ink"][0]}" cx="{_n(x)}" cy="{_n(y)}" r="4"/>'


def _box(place: _Placed, box: Box) -> str:
    node, (x, y), half = box.node, place.at((box.column, box.level)), _measure(box.node)
    if node.kind == "sum":
        return (
            f'<circle class="sum" {paint("sum")} stroke-width="1.6" cx="{_n(x)}" cy="{_n(y)}" r="{_RADIUS}"/>'
            f'<path class="wire" stroke="{COLOURS["ink"][0]}" stroke-width="1.6"'
            f' d="M{_n(x - 5)} {_n(y)}h10M{_n(x)} {_n(y - 5)}v10"/>'
        )
    words = "".join(_text(x, y, i, len(node.lines), line) for i, line in enumerate(node.lines))
    if node.kind in ("in", "out"):
        return f'<g{" class=" + quoteattr("skip") if box.is_skip else ""} font-weight="bold">{words}</g>'
    rounded = half.y if node.kind in ("factor", "gain") and len(node.lines) == 1 else 5
    dashes = ' stroke-dasharray="4 3"' if node.kind == "stop" else ""
    index = f' data-index="{" ".join(map(str, node.indices))}"' if node.indices else ""
    return (
        f'<g{index}><rect class="{node.kind}" {paint(node.kind)} stroke-width="1.6"{dashes} x="{_n(x - half.x)}"'
        f' y="{_n(y - half.y)}" width="{_n(2 * half.x)}" height="{_n(2 * half.y)}" rx="{_n(rounded)}"/>{words}</g>'
    )


def _text(x: float, y: float, i: int, count: int, line: str) -> str:
    """One of several lines that are centred together."""
    size = _FONT_SIZE[i > 0]
    base = y + (i - (count - 1) / 2) * _LINE + 0.35 * size  # 0.35: half the height of a capital
    return f'<text x="{_n(x)}" y="{_n(base)}" font-size="{size}">{escape(line)}</text>'


def _minus(place: _Placed, wire: Wire) -> str:
    """The sign of what is subtracted, beside the arrow."""
    (x, y), before = place.at(wire.points[-1]), place.at(wire.points[-2])
    side = 1 if before[0] > x else -1
    x, y = (x + side * (_RADIUS + 6), y - 6) if wire.is_side else (x - 12, y + _RADIUS + 10)
    return f'<text x="{_n(x)}" y="{_n(y)}" font-size="18" font-weight="bold">−</text>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
