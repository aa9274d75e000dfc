"""A drawing shows all that is in a formula, once, with no box or wire on top of another."""

import re
from collections import Counter
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from normula.formula import Formula, FormulaError
from normula.formula.draw import svg, terminal
from normula.formula.draw.layout import Layout, layout
from normula.formula.tree import Call, Gain, walk
from normula.formula.words import FUNCTIONS

SVG = "{http://www.w3.org/2000/svg}"

STEPS = [
    "x + f(x)",
    "x + f(norm(x))",
    "norm(x + f(x))",
    "x + norm(f(norm(x)))",
    "x + norm(f(x, qk=norm))",
    "x + f(norm(x), qk=norm, out=rmsnorm)",
    "norm(x + f(norm(x)))",
    "norm((2*L)**(1/4) * x + f(x))",
    "n = norm(x); n + f(n)",
    "n = norm(x); a * n + f(n)",
    "x - f(x)",
    "-norm(x) - f(x)",
    "x + gain * norm(f(x))",
    "x + gain(0) * f(x)",
    "x + gain(1e-5, 'channel') * f(norm(x))",
    "x + f(norm(x) / sqrt(l))",
    "x + (L + 1) * f(norm(x))",
    "x - silu(gain(0)) * stop(x) + f(norm(x))",
    "l2norm(x + gain(0.05, 'channel') * (l2norm(f(x)) - x))",
    "b = f(x); d = d + b; x = norm(x + b)",
    "b = f(x); b = gain * b; d = d + b; x = x + 2 * b",
]
LAYERS = [
    "x = x + attn(norm(x)); x = x + mlp(norm(x))",
    "n = norm(x); x = x + attn(n) + mlp(n)",
    "n = norm(x); x = x + gain * (attn(n) + mlp(n))",
    "x = x + attn(norm(x)) + mlp(norm(x))",
    "n = norm(x); x = a * n + attn(n); m = norm(x); x = a * m + moe(m)",
    "h = norm(x + attn(x)); x = norm(x + h + mlp(h))",
    "h = x + attn(x); x = h + mlp(norm(h) - x)",
    "x = x + 0.5 * mlp(norm(x)); x = x + attn(norm(x)); x = x + conv(norm(x)); x = x + 0.5 * mlp(norm(x)); x = norm(x)",
    "x = attn(x); x = x + mlp(x)",
    "r = conv(norm(x)); x = r + attn(conv(norm(x))); x = x + mlp(norm(x))",
    "u = conv(x); u = u + gain * attn(norm(u)); x = x + gain * mlp(norm(u))",
    "x = norm(attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x)); y = norm(y + cross(y))",
    "x = norm(x + attn(x)); x = x - pool(x); x = x + mlp(x); x = norm(x - pool(x)); x = x - pool(x)",
    "x = pool(x) + gain * mlp(norm(conv(x))); x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x))",
    "x = x + attn(norm(x)); n = norm(x); m = moe(n); x = x + mlp(n); x = x + attn(norm(x)); x = x + mlp(norm(x)) + m",
    "x = x + attn(norm(x)); x = conv(x); x = x + mlp(norm(x))",
    "x = x + conv(x); x = x + attn(norm(x)) + attn(norm(y)) + attn(norm(z)); x = x + mlp(norm(x))",
    "x = x + gain * attn(norm(x)) + gain * attn(norm(x)); x = x + gain * mlp(norm(x)) + gain * mlp(norm(x))",
    "h = norm(mlp(x)); h = norm(h + attn(norm(mlp(x)))); h = norm(h + mlp(h)); x = norm(x + mlp(h))",
    "h = gain * mlp(x); h = gain * (h + attn(gain * mlp(x))); h = gain * (h + mlp(h)); x = gain * (x + mlp(h))",
    "x = x + ssm(norm(x)); x = x + mlp(norm(x)); x = 0.5 * x",
    "d = d + f(x); x = d",
    "t = x; x = y + f(x); y = t",
]

VALUES = st.recursive(
    st.sampled_from(["x", "x", "y", "h"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["norm", "rmsnorm", "stop", "attn", "mlp"]), inner).map("{0[0]}({0[1]})".format),
        st.tuples(st.sampled_from(["2", "gain", "gain(0, 'channel')", "L**(1/4)"]), inner).map(
            "{0[0]} * ({0[1]})".format
        ),
        st.tuples(inner, st.sampled_from("+-"), inner).map("({0[0]} {0[1]} {0[2]})".format),
    ),
    max_leaves=6,
)
TEXTS = st.lists(st.tuples(st.sampled_from(["x", "h", "y"]), VALUES), max_size=3).map(
    lambda statements: "; ".join(
        ["h = norm(x)", *(f"{name} = {value}" for name, value in statements), "x = h + mlp(x)"]
    )
)


@pytest.mark.parametrize("text", STEPS + LAYERS)
def test_drawing_is_well_formed(text):
    check(Formula(text))


@pytest.mark.property
@given(TEXTS)
def test_any_formula_can_be_drawn(text):
    try:
        formula = Formula(text)
    except FormulaError:
        assume(False)
    check(formula)


@pytest.mark.parametrize("text", STEPS)
def test_a_step_fits_a_page_and_a_terminal(text):
    assert max(map(len, terminal(Formula(text)).splitlines())) <= 60
    assert float(ElementTree.fromstring(svg(Formula(text))).get("width")) <= 340  # the narrowest phones have 360


def test_pre_ln_in_a_terminal():
    assert (
        terminal(Formula("x + f(norm(x))"))
        == """\
x'
┃
⊕◄──────┐
┃    ┌──┴───┐
┃    │  f   │
┃    └──┬───┘
┃    ┌──┴───┐
┃    │ norm │
┃    └──┬───┘
┠───────┘
x"""
    )


def test_post_ln_in_a_terminal_has_its_norm_on_the_skip_path():
    assert (
        terminal(Formula("norm(x + f(x))"))
        == """\
   x'
┌──┸───┐
│ norm │
└──┰───┘
   ⊕◄─────────┐
   ┃       ┌──┴───┐
   ┃       │  f   │
   ┃       └──┬───┘
   ┠──────────┘
   x"""
    )


def test_norms_stand_where_the_formula_has_them():
    columns = {
        text: {box.column for box in layout(Formula(text).tree).boxes if box.node.kind == "norm"}
        for text in ("x + f(norm(x))", "norm(x + f(x))", "x + norm(f(norm(x)))", "norm(x + f(norm(x)))")
    }
    assert list(columns.values()) == [{1}, {0}, {1}, {0, 1}]


def test_other_streams_stand_on_the_left():
    plan = layout(Formula("b = f(x); d = d + b; x = norm(x + b)").tree)
    assert {box.node.lines[0]: box.column for box in plan.boxes if box.node.kind == "in"} == {"d": -1, "x": 0}


def test_what_is_subtracted_has_a_sign():
    assert "⊕◄−" in terminal(Formula("x - f(x)"))
    assert svg(Formula("x - f(x)")).count("−</text>") == 1
    assert "−" not in svg(Formula("x + f(x)")) + terminal(Formula("x + f(x)"))


def test_a_gain_of_two_places_is_told_once():
    drawn = terminal(Formula("b = f(x); b = gain * b; d = d + b; x = x + 2 * b"))
    assert drawn.count("g = gain") == drawn.count("× 2*g") == 1


def test_svg_says_what_it_shows():
    formula = Formula("x + f(norm(x))")
    drawing = ElementTree.fromstring(svg(formula, title="a < b & c"))
    assert drawing.get("role") == "img"
    assert drawing.findtext(f"{SVG}title") == "a < b & c"
    assert drawing.findtext(f"{SVG}desc") == f"{formula.text}. {formula.words}"
    assert ElementTree.fromstring(formula.svg()).findtext(f"{SVG}title") == formula.text


def test_svg_needs_nothing_and_disturbs_nothing():
    text = svg(Formula("x + gain(0) * f(norm(x))"))
    assert not re.search(r"\bid=|<script|href|url\(|@import", text)
    sheet = ElementTree.fromstring(text).findtext(f"{SVG}style")
    assert "prefers-color-scheme:dark" in sheet
    selectors = re.findall(r"[{}]([^{}@]+)\{", sheet)
    assert selectors
    assert all(part.startswith(".normula-drawing") for selector in selectors for part in selector.split(","))


def check(formula: Formula) -> None:
    plan = layout(formula.tree)
    drawing = ElementTree.fromstring(svg(formula))
    assert_complete(formula, drawing)
    assert_straight(formula, plan)
    assert_apart(plan)
    assert_clear(drawing)


def assert_complete(formula: Formula, drawing: ElementTree.Element) -> None:
    """Each call and gain once, in both drawings."""
    indices = [int(i) for group in drawing.iter(f"{SVG}g") for i in group.get("data-index", "").split()]
    assert sorted(indices) == sorted(part.index for part in (*formula.calls, *formula.gains))
    parts = [part for statement in formula.tree.statements for part in walk(statement.value)]
    told = Counter(part.word for part in parts if isinstance(part, Call) and part.word not in FUNCTIONS)
    told["gain"] = sum(isinstance(part, Gain) for part in parts)
    in_svg = " ".join(element.text or "" for element in drawing.iter(f"{SVG}text"))
    for text in (in_svg, terminal(formula)):
        for word, count in told.items():
            assert len(re.findall(rf"(?<!=)\b{word}\b", text)) == count, (word, text)


def assert_straight(formula: Formula, plan: Layout) -> None:
    """The skip path of x is one line in column 0."""
    ends = {box.node.lines[0]: number for number, box in enumerate(plan.boxes) if box.node.kind in ("in", "out")}
    if "x" not in ends or "x'" not in ends or not carries(plan, ends["x"], ends["x'"]):
        return
    at = ends["x"]
    while at != ends["x'"]:
        assert plan.boxes[at].column == 0
        (wire,) = [wire for wire in plan.wires if wire.source == at and wire.is_skip]
        assert len(wire.points) == 2
        at = wire.target
    assert plan.boxes[at].column == 0


def carries(plan: Layout, start: int, end: int) -> bool:
    """Whether a value gets from one box to another past all sublayers."""
    seen, reached = set(), {start}
    while reached - seen:
        at = (reached - seen).pop()
        seen.add(at)
        if plan.boxes[at].node.kind not in ("sublayer", "stop"):
            reached |= {wire.target for wire in plan.wires if wire.source == at}
    return end in seen


def assert_apart(plan: Layout) -> None:
    """No two boxes at one place, and no two values on one piece of wire."""
    places = [(box.column, box.level) for box in plan.boxes if box.node.kind != "bend"]
    assert len(set(places)) == len(places)
    bends = {wire.target: wire.source for wire in plan.wires if plan.boxes[wire.target].node.kind == "bend"}
    owner: dict[tuple, int] = {}
    for wire in plan.wires:
        source = wire.source
        while source in bends:
            source = bends[source]
        for start, end in pairwise(wire.points):
            for piece in pieces(*sorted((start, end))):
                assert owner.setdefault(piece, source) == source


def pieces(low: tuple[int, int], high: tuple[int, int]) -> list[tuple]:
    """A straight line cut into steps from column to column, or from level to level."""
    if low[0] == high[0]:
        return [("up", low[0], level) for level in range(low[1], high[1])]
    return [("right", column, low[1]) for column in range(low[0], high[0])]


def assert_clear(drawing: ElementTree.Element) -> None:
    """On the page: boxes do not overlap, hold their text, and have no wire running through."""
    boxes = [rect(element) for element in drawing.iter(f"{SVG}rect") if element.get("class") != "paper"]
    sums = [element for element in drawing.iter(f"{SVG}circle") if element.get("class") == "sum"]
    circles = [tuple(float(c.get("c" + axis)) + side * 10 for side in (-1, 1) for axis in "xy") for c in sums]
    for one, other in combinations(boxes + circles, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for path in drawing.iter(f"{SVG}path"):
        if "wire" in path.get("class", "") and "h" not in path.get("d"):  # the plus in a circle has an h
            for low, high in segments(path.get("d")):
                for left, top, right, bottom in boxes + circles:
                    apart = high[0] <= left or low[0] >= right or high[1] <= top or low[1] >= bottom
                    assert apart, (low, high)
    for group in drawing.iter(f"{SVG}g"):
        if (box := group.find(f"{SVG}rect")) is not None:
            for text in group.iter(f"{SVG}text"):
                assert float(text.get("font-size")) >= 11
                assert 0.602 * float(text.get("font-size")) * len(text.text) <= float(box.get("width")) - 4
    left, top, right, bottom = map(float, drawing.get("viewBox").split())
    assert all(left < b[0] and top < b[1] and b[2] < right and b[3] < bottom for b in boxes + circles)


def rect(element: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def segments(path: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The straight pieces of a path of M, H and V, each from its smaller to its greater end."""
    found = []
    x = y = 0.0
    for letter, numbers in re.findall(r"([MHV])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        if letter == "M":
            x, y = values
            continue
        new = (values[0], y) if letter == "H" else (x, values[0])
        found.append(((min(x, new[0]), min(y, new[1])), (max(x, new[0]), max(y, new[1]))))
        x, y = new
    return found
