"""The summary in the terminal."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from normula.record import Comparison
from normula.report import terminal
from tests.report import records


def printed(record: Comparison, width: int = 80, **options: object) -> str:
    out = io.StringIO()
    terminal(record, Console(file=out, width=width, **options))  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.golden
def test_a_summary_at_80_columns(golden: Callable[[str, str], None]) -> None:
    golden("report/terminal.txt", printed(records.comparison()))


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("record", [records.comparison(), records.exploding(), records.interrupted(), records.many(3)])
def test_no_line_is_wider_than_the_terminal(record: Comparison, width: int) -> None:
    assert max(map(len, printed(record, width).splitlines())) <= width


def test_drawings_stand_side_by_side_where_they_fit() -> None:
    wide, narrow = printed(records.comparison(), 80).splitlines(), printed(records.comparison(), 30).splitlines()
    assert any("Pre-LN" in line and "Post-LN" in line for line in wide[:2])
    assert narrow[0].rstrip() == "Pre-LN"


def test_brackets_of_a_verdict_are_no_markup() -> None:
    assert "best loss" not in printed(records.interrupted())
    assert "2.50 [2.50, 2.51]" in printed(records.comparison())


def test_a_pipe_gets_no_escape_sequences_and_a_terminal_does() -> None:
    assert "\x1b" not in printed(records.comparison())
    assert "\x1b" in printed(records.comparison(), force_terminal=True, color_system="standard")


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(records.comparison(), force_terminal=True)


def test_names_cannot_steer_the_terminal() -> None:
    text = printed(records.hostile())
    assert "\x1b" not in text
    assert "\x00" not in text


def test_what_is_void_and_what_is_missing_is_said() -> None:
    assert "VOID  Post-LN in the popular figure" in printed(records.comparison())
    assert "No training run was finished." in printed(records.interrupted())
