"""The page of a race, its figures and its summary: complete, self-contained, safe, the same twice."""

import io
import re
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree as ET

import matplotlib.image
import pytest
from rich.console import Console

from normula.formula import Placement
from normula.race import Grid
from normula.record import Comparison, Race, from_json, to_json
from normula.report import html
from normula.report.race_figures import png_files, svg_files
from normula.report.race_spec import race_command
from normula.report.race_terminal import race_terminal
from tests.race.answers import raced
from tests.report import records
from tests.report.races import RACES
from tests.report.reader import Reader


@cache
def page(name: str) -> str:
    return html(RACES[name])


@pytest.mark.parametrize("name", RACES)
def test_a_page_is_one_well_formed_file_that_loads_nothing(name: str) -> None:
    read = Reader(page(name))
    assert not {tag for tag, _ in read.elements} & {"script", "iframe", "object", "embed", "img", "form", "base"}
    assert not re.search(r"url\((?!#)|@import|https?:", page(name))
    for tag, attributes in read.elements:
        assert not any(word.startswith("on") for word in attributes)
        for word in ("src", "href", "xlink:href"):
            assert (attributes.get(word) or "#").startswith("#") or (tag, attributes[word]) == ("link", "data:,")


@pytest.mark.parametrize("name", RACES)
def test_every_drawing_is_xml_with_ids_of_its_own_and_is_described(name: str) -> None:
    for text in re.findall(r"<svg.*?</svg>", page(name), re.DOTALL):
        root = ET.fromstring(text)
        if root.get("class") == "chart":
            assert (root[0].tag, root[1].tag) == ("title", "desc")
            assert len(root[1].text or "") > 20
    ids = [attributes["id"] for _, attributes in Reader(page(name)).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page(name))) <= set(ids)


def test_the_same_record_gives_the_same_bytes_also_from_json() -> None:
    assert html(from_json(Race, to_json(RACES["whole"]))) == page("whole")


def test_a_page_holds_all_that_the_record_says() -> None:
    race, text = RACES["whole"], Reader(page("whole")).text
    for statement in race.verdict:
        assert statement.kind == "outcome" or statement.text in text
    for trial in race.trials:
        assert trial.identity in text
    for one in race.contestants:
        assert one.title in text
        assert one.words in text
    for words in ("Pre-LN", "torch", "Learning rates", "depth 2", "Every run", "Sensitivity to the rate"):
        assert words in text
    assert "normula race pre post deepnorm 'norm(x + f(x)), final=norm(x)' --depth 2 4" in text


def hovers(text: str) -> list[str]:
    return re.findall(r"<rect[^>]*pointer-events=\"all\"[^>]*><title>(.*?)</title>", text)


def test_every_cell_of_the_map_tells_its_values_where_there_is_a_pointer() -> None:
    race = RACES["whole"]
    told = hovers(page("whole"))
    for cell in race.cells:
        where = f"{cell.name}, depth {cell.facet.depth}, rate {cell.lr:g}, warmup {cell.warmup}: "
        (found,) = [one for one in told if one.startswith(where)]
        for word, number in cell.outcomes.items():
            assert f"{number} {word}" in found


def test_outcomes_have_a_sign_and_not_a_colour_alone() -> None:
    charts = re.findall(r'<svg[^>]*aria-labelledby="map-.*?</svg>', page("whole"), re.DOTALL)
    words = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", " ".join(charts)))
    assert "○ 1/2" in words
    assert "✕ 1/2" in words
    assert " ✕ " in words
    assert " ○ " in words


def test_the_best_setting_of_each_contestant_and_depth_is_framed() -> None:
    race = RACES["whole"]
    charts = re.findall(r'<svg[^>]*aria-labelledby="map-.*?</svg>', page("whole"), re.DOTALL)
    frames = sum(chart.count("stroke:var(--ink)") for chart in charts)
    assert frames == len(race.standings)


def test_runs_that_failed_or_were_dropped_stand_there_with_their_reasons() -> None:
    text = Reader(page("mixed")).text
    assert "MemoryError: 3 GiB" in text
    assert "halving: after 5 steps it came 2 of 2" in text
    assert "Not whole: 3 of 4 runs are there (interrupted)" in text
    assert "Budget: halving" in text


def test_steps_and_seconds_of_each_contestant_are_always_there() -> None:
    for name in ("whole", "mixed"):
        text = Reader(page(name)).text
        assert "Steps" in text
        assert "Seconds" in text


def test_a_race_without_runs_says_that_there_is_nothing() -> None:
    text = Reader(page("nothing")).text
    assert text.count("No run was made") == 2
    assert "no training run was finished" in text


def test_names_are_never_markup() -> None:
    assert "<script" not in page("hostile")
    assert "&lt;script&gt;" in page("hostile")
    assert "\x07" not in page("hostile")


@pytest.mark.parametrize("name", ["whole", "mixed", "hostile"])
def test_figures_are_files_that_stand_alone(name: str) -> None:
    files = dict(svg_files(RACES[name]))
    assert {one.split("-")[0] for one in files} >= {"map", "ranking", "curves"}
    for path, text in files.items():
        assert re.fullmatch(r"[a-z]+-\d\d-[a-z0-9.-]+\.svg", path)
        root = ET.fromstring(text)
        assert root.tag.endswith("svg")
        assert "var(--" not in text


def test_figures_for_print_are_sharp_and_not_of_one_colour() -> None:
    name, data = next(iter(png_files(RACES["mixed"])))
    assert name.removesuffix(".png") == next(iter(svg_files(RACES["mixed"])))[0].removesuffix(".svg")
    pixels = matplotlib.image.imread(io.BytesIO(data))
    assert pixels.shape[1] > 1200
    assert tuple(pixels[0, 0, :3]) == (1.0, 1.0, 1.0)
    blue = (pixels[..., 2] > pixels[..., 0] + 0.2).mean()
    assert blue > 0.05  # the fuller cells
    assert not (
        (abs(pixels[..., 0] - 0.627) < 0.01) & (pixels[..., 2] < 0.1)
    ).any()  # no colour that stands for another


@pytest.mark.parametrize(
    "fields",
    [
        dict(),
        dict(lr=(3e-4, 1.7e-3), warmup=(0, 5), depth=(1, 2), steps=30, seeds=2, shape="cosine", clip=1.0),
        dict(init=("own", "torch"), bias=False, weight_decay=0.1, beta2=0.95, optimiser=("adam", "sgd"), batch=(4,)),
        dict(norm=("rmsnorm",), heads=4, hidden=48, activation="gelu", dropout=0.1, context=8, dtype="bfloat16"),
    ],
)
def test_the_command_repeats_the_race(fields: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line makes of it is the very grid."""
    import argparse
    import shlex

    from normula.cli import race_command as command

    grid = Grid(placements=("pre", "post, final=norm(x)", "x + f(norm(x))/2"), task="copy", **fields)  # type: ignore[arg-type]
    race = RACES["nothing"]
    text = race_command(replace(race, grid=grid.to_dict()))
    assert text is not None
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    words = shlex.split(text)
    assert words[:2] == ["normula", "race"]
    options = parser.parse_args(words[2:])
    placements = [lane for word in options.placements for lane in command.lanes(word)]
    assert command.grid_of(placements, **command._given(options, command.FIELDS)) == grid


def test_what_the_command_line_cannot_say_has_no_command() -> None:
    race = RACES["nothing"]
    mine = Placement(name="mine", formula="d = d + f(norm(x)); x", streams={"d": "x"})
    for grid in (Grid(placements=("pre",), task="copy", beta1=0.5), Grid(placements=(mine,), task="copy")):
        made = replace(race, grid=grid.to_dict())
        assert race_command(made) is None
        assert "what the command line cannot say" in Reader(html(made)).text


def test_the_limits_are_in_the_command() -> None:
    assert (race_command(RACES["mixed"]) or "").endswith(" --halving")


def printed(race: Race, width: int) -> str:
    out = io.StringIO()
    race_terminal(race, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("width", [80, 140])
def test_the_summary_fits_the_terminal(name: str, width: int) -> None:
    assert max(map(len, printed(RACES[name], width).splitlines())) <= width


def test_the_summary_has_verdict_and_compute() -> None:
    text = printed(RACES["whole"], 120)
    for words in (
        "Take care",
        "Ranking, each at its best setting",
        "steps",
        "seconds",
        "Rate and warmup",
        "✕ diverged",
    ):
        assert words in text
    assert "No training run was made." in printed(RACES["nothing"], 80)


@pytest.mark.parametrize("record", [RACES["whole"], records.comparison()], ids=["race", "comparison"])
def test_runs_that_are_too_many_for_a_page_are_counted(
    record: Race | Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("normula.report.page.MOST_ROWS", 3)
    assert f"{len(record.trials) - 3} more runs are in the record." in Reader(html(record)).text


def test_one_contestant_alone_has_a_page() -> None:
    text = Reader(html(raced(lambda entry: 1.0, "pre", seeds=1))).text
    assert "Pre-LN" in text
    assert "With one seed there are no intervals" in text
