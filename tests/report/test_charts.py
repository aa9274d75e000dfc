"""What charts are made of: scales, labels that do not meet, numbers."""

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normula.report.chart import Chart, Line
from normula.report.lines import line_chart
from normula.report.scale import Scale, scale, spread
from normula.report.svg import drawing_svg
from normula.report.words import nats, number, tick

anything = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.property
@given(st.lists(st.floats(-50, 150), min_size=1, max_size=12))
def test_labels_keep_their_order_their_distance_and_the_bounds(wanted: list[float]) -> None:
    places = spread(wanted, 13, 0, 200)
    ordered = [place for _, place in sorted(zip(wanted, places, strict=True))]
    assert all(0 <= place <= 200 + 1e-9 for place in places)
    assert all(b - a >= 13 - 1e-9 for a, b in pairwise(ordered))


def test_labels_that_are_apart_stay_where_they_are() -> None:
    assert spread([10.0, 100.0, 50.0], 13, 0, 200) == [10.0, 100.0, 50.0]


def test_too_many_labels_share_the_room() -> None:
    assert spread([0.0, 0.0, 0.0], 13, 0, 20) == [0.0, 10.0, 20.0]


@pytest.mark.property
@given(st.lists(anything, max_size=6), st.booleans())
def test_every_scale_has_finite_ends_and_ticks_within(values: list[float], log: bool) -> None:
    found = scale(values, log=log)
    low, high = found.limits
    places, labels = found.ticks
    assert math.isfinite(low)
    assert low < high < math.inf
    assert all(low <= place <= high for place in places)
    assert len(places) == len(labels) <= 8


@pytest.mark.property
@settings(max_examples=20)
@given(st.lists(anything, min_size=1, max_size=5), st.booleans())
def test_any_values_can_be_drawn(values: list[float], log: bool) -> None:
    places = range(len(values))
    line = Line(label="a", x=places, y=values, low=values, high=values, colour="series-1", marker="o")
    chart = Chart(title="t", seen="s", lines=[line], x_label="x", y_label="y", log=log, references=[(1.0, "one")])
    assert "nan" not in re.sub(r"<(title|desc).*?</\1>", "", line_chart(chart, "k"))


def test_ticks_of_a_logarithmic_axis_are_powers_where_it_is_long_and_numbers_where_it_is_short() -> None:
    assert Scale(1e-9, 1.0, log=True).ticks[1] == ["10⁻⁸", "10⁻⁶", "10⁻⁴", "0.01", "1"]
    assert Scale(0.5, 2.0, log=True).ticks[1] == ["0.5", "1", "2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.5, "−0.500"),
        (12345.0, "12345"),
        (99999.0, "1.00×10⁵"),
        (1e30, "1.00×10³⁰"),
        (math.inf, "not finite"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_losses_have_two_places_and_ticks_what_they_need() -> None:
    assert [nats(value) for value in (2.5, 1e30, math.nan)] == ["2.50", "1.00×10³⁰", "not finite"]
    assert [tick(value) for value in (0.001, 30000.0, 3e6, -1e-7)] == ["0.001", "30000", "3×10⁶", "−10⁻⁷"]


@pytest.mark.negative
@pytest.mark.parametrize(
    "text",
    [
        "",
        "no svg",
        "<p/>",
        "<svg><script>1</script></svg>",
        '<svg onload="1"/>',
        '<svg><image href="x.png"/></svg>',
        '<svg><a href="x"><text>x</text></a></svg>',
        '<svg><rect fill="url(http://x)"/></svg>',
        "<svg><style>@import 'x';</style></svg>",
        "<svg><foreignObject/></svg>",
        '<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>',
    ],
)
def test_what_is_no_harmless_drawing_is_left_out(text: str) -> None:
    assert drawing_svg(text) is None


def test_a_drawing_is_kept() -> None:
    text = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><title>a &lt; b</title><path d="M0 0"/></svg>'
    assert drawing_svg(text) == '<svg viewBox="0 0 1 1"><title>a &lt; b</title><path d="M0 0" /></svg>'
