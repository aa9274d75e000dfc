"""The ledger's page, tables and charts, from results made by hand."""

import io
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from normula.record import ClaimResult
from normula.report.claims_page import claim_svg, claims_page, print_claims
from tests.claims.results import grid, not_finite, result


def printed(*results: ClaimResult, width: int = 80) -> str:
    out = io.StringIO()
    print_claims(results, Console(file=out, width=width))
    return out.getvalue()


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page; an escaped bar is no border."""
    lines = [line.replace("\\|", "/") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_page_has_a_row_and_a_section_for_each_claim() -> None:
    page = claims_page([result("one"), result("two", verdict="holds in part", recorded="holds in part")])
    assert [row[:1] + row[2:] for row in rows(page)[2:4]] == [
        ["[one](#one)", "holds", "a number: 0.123 (0.12)"],
        ["[two](#two)", "holds in part", "a number: 0.123 (0.12)"],
    ]
    assert page.index("## one") < page.index("**Holds.**") < page.index("## two") < page.index("**Holds in part.**")
    for text in ("Nobody, Nothing, 2020", "By hand.", "It does.", "| steps | 20 |  |"):
        assert page.count(text) == 2


def test_a_page_does_not_hang_on_how_long_it_took() -> None:
    assert claims_page([result(seconds=1.0)]) == claims_page([result(seconds=99.0)])


def test_no_text_of_a_claim_is_read_as_markdown() -> None:
    page = claims_page([result()])
    assert all(len(row) in (3, 4) for row in rows(page))
    assert "x\\_1 \\* x\\_2 &lt;script>" in page


def test_a_changed_verdict_is_said_on_the_page() -> None:
    assert "**Holds (on record: does not hold here).**" in claims_page([result(recorded="does not hold here")])


def test_labels_of_row_and_column_make_a_table() -> None:
    table = rows(claims_page([grid()]))[3:]
    assert table == [
        ["", "at 6", "at 96"],
        ["---", "---", "---"],
        ["Pre-LN", "0.500 (.5)", "0.250"],
        ["Post-LN", "1.00×10⁻²⁹", ""],
    ]


def test_numbers_that_are_not_finite_are_shown() -> None:
    assert claims_page([not_finite()]).count("not finite") == 4  # the key number and three rows
    assert printed(not_finite()).count("not finite") == 3
    assert printed(not_finite(), result()).count("not finite") == 1


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("results", [(result(),), (result(), not_finite(), grid())], ids=["one", "several"])
def test_no_line_is_wider_than_the_terminal(results: tuple[ClaimResult, ...], width: int) -> None:
    assert max(map(len, printed(*results, width=width).splitlines())) <= width


def test_the_longest_names_and_verdicts_stand_on_one_line_at_80_columns() -> None:
    from normula.claims import names

    longest = max(names(), key=len)
    verdict = "artefact of its probe"
    text = printed(result(longest, verdict=verdict, recorded=verdict), result())
    assert any(longest in line and verdict in line and "0.123 (0.12)" in line for line in text.splitlines())


def test_one_claim_is_printed_with_its_details_and_brackets_as_they_are() -> None:
    text = printed(result())
    for part in (
        "[holds]",
        "Nobody, Nothing, 2020",
        "By hand.",
        "a number",
        "0.123",
        "0.12",
        "It does.",
        "1.2 seconds",
    ):
        assert part in text


def test_nothing_to_show_is_shown() -> None:
    assert "# The claims" in claims_page([])
    assert "0 claims" in printed()
    assert "made-up" in claims_page([result(figures=())])
    assert "made-up" in printed(result(figures=()), result())


def test_a_chart_stands_alone() -> None:
    text = claim_svg(result())
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("width")
    assert "var(--" not in text
    words = " ".join(root.itertext())
    for part in ("made-up", "measured", "said", "layer", "size"):
        assert part in words


def test_a_chart_with_values_that_are_not_finite_says_so() -> None:
    assert "gone: all 2 values are not finite." in claim_svg(not_finite())


@pytest.mark.negative
def test_a_claim_of_numbers_alone_has_no_chart() -> None:
    with pytest.raises(ValueError, match="made-up is numbers alone and has no chart"):
        claim_svg(result(series=()))
