"""The page of a comparison: complete, self-contained, safe, the same twice, readable."""

import math
import re
from dataclasses import replace
from functools import cache
from html import escape
from xml.etree import ElementTree as ET

import matplotlib
import pytest

from normula.record import Comparison, from_json, to_json
from normula.report import html
from normula.report.theme import COLOURS, TEXT
from tests.report import records
from tests.report.reader import Reader

RECORDS = {
    "whole": records.comparison(),
    "interrupted": records.interrupted(),
    "exploding": records.exploding(),
    "many": records.many(),
    "hostile": records.hostile(),
    "one": records.comparison(
        contestants=(records.PRE,), flows=(records.flow("pre", (0,)),), trials=records.trials(("pre",)), planned=16
    ),
    "none": replace(records.interrupted(), contestants=(), settings={}, data={}, verdict=()),
}


@cache
def page(name: str) -> str:
    return html(RECORDS[name])


@pytest.mark.parametrize("name", RECORDS)
def test_a_page_is_well_formed_and_loads_and_runs_nothing(name: str) -> None:
    read = Reader(page(name))
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "iframe", "object", "embed", "img", "form", "base"}
    assert not re.search(r"url\((?!#)|@import", page(name))
    for tag, attributes in read.elements:
        assert not any(word.startswith("on") for word in attributes)
        for word in ("src", "href", "xlink:href", "action", "data"):
            assert (attributes.get(word) or "#").startswith("#") or (tag, attributes[word]) == ("link", "data:,")
    assert "http:" not in page(name)
    assert "https:" not in page(name)


@pytest.mark.parametrize("name", RECORDS)
def test_every_drawing_is_xml_with_ids_of_its_own_and_every_chart_is_described(name: str) -> None:
    for text in re.findall(r"<svg.*?</svg>", page(name), re.DOTALL):
        root = ET.fromstring(text)
        if root.get("class") == "chart":
            title, description = root[0], root[1]
            assert (title.tag, description.tag) == ("title", "desc")
            assert title.get("id") == root.get("aria-labelledby")
            assert description.get("id") == root.get("aria-describedby")
            assert len(description.text or "") > 20
    ids = [attributes["id"] for _, attributes in Reader(page(name)).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = re.findall(r'(?:href="|url\()#([^")]+)', page(name))
    assert set(referred) <= set(ids)


@pytest.mark.parametrize("name", RECORDS)
def test_a_page_is_small(name: str) -> None:
    assert len(page(name).encode()) < 1_500_000


def test_the_same_record_gives_the_same_bytes() -> None:
    assert html(RECORDS["whole"]) == page("whole")
    assert html(from_json(Comparison, to_json(RECORDS["whole"]))) == page("whole")


def test_the_users_settings_of_matplotlib_change_nothing() -> None:
    mine = {"lines.linewidth": 9, "axes.facecolor": "red", "svg.fonttype": "path", "font.size": 30, "axes.grid": True}
    with matplotlib.rc_context(mine):
        assert html(RECORDS["whole"]) == page("whole")
        assert matplotlib.rcParams["lines.linewidth"] == 9


def test_a_page_holds_all_that_the_record_says() -> None:
    record, text = RECORDS["whole"], Reader(page("whole")).text
    for one in record.contestants:
        for words in (one.title, one.placement["formula"], one.skip, one.words, one.predictions[0][0]):
            assert words in text
    for statement in record.verdict:
        assert statement.text in text
    for words in ("0123456789abcdef", "torch 2.4.0", "Python 3.11.7", "65 s", "The stream of pre grows.", "✓ learned"):
        assert words in text
    assert "normula compare pre post --layers 3 --width 8" in text
    assert "--lr 0.001 0.01 --warmup 0 5 --init xavier normal" in text


def test_the_verdict_comes_first_and_the_raw_numbers_last() -> None:
    sections = re.findall(r'<section id="([a-z]+)"', page("whole"))
    assert sections == ["verdict", "placements", "training", "signal", "depth", "popular", "papers", "measured", "raw"]
    assert page("whole").index("Post-LN does not learn") < page("whole").index("<svg")


def test_the_popular_figure_is_shown_both_ways_and_void_where_it_is() -> None:
    text = Reader(page("whole")).text
    assert "0.0000 VOID" in text
    assert "35.7888" in text
    assert "6.80×10⁷" in text
    assert "1.34" in text
    assert "Here Post-LN reads 5.00×10⁻⁷ at depth 1" in text
    chart = re.search(r'<svg[^>]*aria-labelledby="popular-1-title".*?</svg>', page("whole"), re.DOTALL)
    assert chart is not None
    assert ">VOID</text>" in chart[0]
    assert "var(--panel)" in chart[0]  # hollow marks


def test_where_no_point_is_void_the_page_says_so() -> None:
    points = tuple(replace(point, norm_passes=math.nan) for point in records.popular_points())
    text = html(records.comparison(popular=points))
    assert "No point here is void" in text
    assert ">VOID</text>" not in text


def test_a_blind_probe_over_depth_is_void() -> None:
    depths = tuple(replace(point, void=point.name == "post") for point in records.comparison().depths)
    assert html(records.comparison(depths=depths)).count(">VOID</text>") == 3  # two gradients here, the popular figure


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("interrupted", "No training run was finished"),
        ("interrupted", "The flow through the layers was not measured"),
        ("interrupted", "Stacks of different depth were not measured"),
        ("interrupted", "The popular figure was not measured"),
        ("interrupted", "Interrupted: 0 of 32 runs"),
        ("exploding", "✕ diverged"),
        ("exploding", "1 ✓ learned, 1 ○ stuck"),
        ("exploding", "not run"),
        ("exploding", "not even the first loss is finite"),
        ("exploding", "exactly 0, which a logarithmic axis cannot show"),
        ("exploding", "not finite"),
        ("exploding", "none: a value is exactly 0"),
        ("many", "7 placements compared"),
        ("many", "The catalogue has no predictions for this formula"),
        ("many", "The popular figure was not measured"),
        ("hostile", "The record has no drawing of it"),
        ("hostile", "has no name to type"),
        ("none", "The record has no placements"),
    ],
)
def test_what_is_missing_is_said(name: str, words: str) -> None:
    assert words in Reader(page(name)).text


def test_a_flow_or_a_figure_that_one_placement_lacks_is_said() -> None:
    record = records.comparison(
        flows=(records.flow("pre"),),
        popular=tuple(point for point in records.popular_points() if point.name == "pre"),
    )
    text = Reader(html(record)).text
    assert "Not measured: Post-LN." in text
    assert "Not drawn for Post-LN" in text


def test_long_titles_get_letters_that_are_explained() -> None:
    assert "<b>F</b> <span>norm((2*L)**(1/4) * x + f(x))</span>" in page("many")


def test_hostile_names_are_escaped() -> None:
    text = page("hostile")
    assert "<script" not in text.lower()
    assert escape('<script>alert("1")</script>', quote=False).replace('"', "&#34;") in text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "onload" not in text
    text.encode()  # no surrogates


def test_a_command_of_ones_own_is_shown() -> None:
    assert "normula compare mine &amp;&amp; echo" in html(records.comparison(), command="normula compare mine && echo")


def test_a_placement_from_python_has_no_command() -> None:
    made = records.contestant("mine", "mine", "b = f(norm(x)); d = d + b; x = x + b")
    made.placement["streams"] = {"d": "x"}
    assert "has no name to type" in html(records.comparison(contestants=(made,)))


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_stands_out_from_its_ground(mode: str) -> None:
    blocks = re.findall(r":root\{([^}]*--page:[^}]*)\}", page("whole"))
    light, dark, printed = (dict(re.findall(r"--([a-z0-9-]+):(#[0-9a-f]{6})", block)) for block in blocks)
    assert printed == light
    assert light.keys() == dark.keys() > COLOURS.keys()
    colours = light if mode == "light" else dark
    for text, ground in TEXT:
        low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)
