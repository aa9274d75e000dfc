"""Bad usage: exit code 2, one clear line on stderr, nothing on stdout, no traceback."""

from pathlib import Path

import pytest

from normula.cli import compare_command
from tests.cli.conftest import TINY, Cli, Result

pytestmark = pytest.mark.negative


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test whose comparison starts to work."""

    def refuse(*_: object) -> None:
        raise AssertionError("the work was started")

    monkeypatch.setitem(compare_command.compare.__globals__, "run_all", refuse)


def refused(result: Result) -> str:
    """The message: the last line, or lines, behind the usage."""
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["comparre"], "no command is called 'comparre'; did you mean 'compare'?"),
        (["xyz"], "no command is called 'xyz'; see normula --help"),
        (["--jsn"], "normula: error:"),
        (["compare", "--widht", "8"], "unrecognized arguments: --widht"),
        (["list", "pre"], "unrecognized arguments: pre"),
        (["explain"], "the following arguments are required: NAME_OR_FORMULA"),
        (["explain", "pree"], "no placement is called 'pree'; the names are post, pre"),
        (["explain", "pree"], "did you mean 'pre'?"),
        (["flow", "pots"], "did you mean 'post'?"),
        (["compare", "pre", "pots"], "did you mean 'post'?"),
        (["compare", "pre", "pre-ln"], "pre is given twice; a comparison needs different placements"),
        (["flow", "pre", "--width", "10", "--heads", "4"], "width must be divisible by heads, and 10 is not by 4"),
        (["compare", "--width", "10", "--heads", "4"], "with width 10, heads can be 1, 2, 5, 10"),
        (["flow", "pre", "--layers", "0"], "argument --layers: a whole number of at least 1 stands here, not '0'"),
        (["compare", "--layers", "two"], "argument --layers: a whole number of at least 1 stands here, not 'two'"),
        (["compare", "--depths", "5", "0"], "argument --depths: a whole number of at least 1 stands here, not '0'"),
        (["compare", "--lr", "fast"], "argument --lr: a rate is a positive number such as 3e-3, or low:high:count"),
        (["compare", "--lr", "0"], "not '0'"),
        (["compare", "--lr", "nan"], "not 'nan'"),
        (["compare", "--lr", "1e-2:1e-3:3"], "not '1e-2:1e-3:3'"),
        (["compare", "--lr", "1e-3:1e-2:1"], "not '1e-3:1e-2:1'"),
        (["compare", "--lr", "1e-3:1e-2"], "not '1e-3:1e-2'"),
        (["compare", "--warmup", "-5"], "argument --warmup"),
        (["compare", "--steps", "20", "--warmup", "50"], "a warmup is from 0 to fewer than the 20 steps, not 50"),
        (["compare", "--init", "xaver"], "argument --init: invalid choice: 'xaver'"),
        (["flow", "pre", "--lr", "1e-3"], "--lr and --warmup belong to a training run; give --steps too"),
        (["flow", "pre", "--warmup", "3"], "--lr and --warmup belong to a training run; give --steps too"),
        (["flow", "pre", "--steps", "3", "--lr", "1e-3:1e-2:3"], "one learning rate at a time"),
        (["flow", "x + conv(x)"], "conv is not built from a spec"),
        (["flow", "x + gain * f(x)"], "does not say what its gain starts at"),
        (["flow", "pre", "--final", "f(x)"], "stands outside the layers and cannot have a sublayer"),
        (["report", "/nowhere/record.json"], "/nowhere/record.json cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_refused_with_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where a report.html would be written
    err = refused(cli(*words))
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["explain", "flow", "compare"])
@pytest.mark.parametrize(
    ("formula", "column", "reason"),
    [
        ("x + f(norm(x)", 5, "this bracket is never closed"),
        ("x + norn(f(x))", 4, "did you mean 'norm'?"),
        ("x + f(x) f(x)", None, ""),
        ("__import__('os').system('true')", None, ""),
    ],
    ids=["open bracket", "unknown word", "no operator", "hostile"],
)
def test_a_formula_that_is_none_is_shown_with_a_caret(
    cli: Cli, tmp_path: Path, command: str, formula: str, column: int | None, reason: str
) -> None:
    html = ["--html", str(tmp_path / "page.html")] if command == "compare" else []
    lines = refused(cli(command, formula, *html)).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"normula {command}: ")
    assert reason in lines[0]
    assert lines[1] == f"  {formula}"
    assert lines[2].strip() == "^"
    if column is not None:
        assert lines[2].index("^") == 2 + column


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/page.html", "the folder of a report must exist"),
        (".", "a report is a file"),
        ("text.txt/page.html", "is a file; name another place"),
    ],
    ids=["no folder", "a folder", "below a file"],
)
@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_page_that_cannot_be_written_is_found_before_any_work(
    cli: Cli, text: Path, tmp_path: Path, command: str, path: str, message: str
) -> None:
    words = [*TINY, "--data", str(text)] if command == "compare" else ["/nowhere/record.json"]
    assert message in refused(cli(command, *words, "--html", str(tmp_path / path)))


def test_a_drawing_that_cannot_be_written_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "the folder of a report must exist" in refused(cli("explain", "pre", "--svg", str(tmp_path / "no/pre.svg")))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "there is no file"),
        (b"", "is empty; give a text of at least 1280 bytes"),
        (b"a" * 1279, "has 1279 bytes; windows of 32 tokens need at least 1280"),
        (b"\x7fELF\0\0" * 1000, "is not text (it holds zero bytes or is not UTF-8); give a text file"),
    ],
    ids=["missing", "empty", "short", "binary"],
)
def test_data_that_cannot_be_learnt_are_refused(cli: Cli, tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "data"
    if data is not None:
        path.write_bytes(data)
    err = refused(cli("compare", "--data", str(path), "--html", str(tmp_path / "page.html")))
    assert err.splitlines() == [err.rstrip("\n")]
    assert message in err
    assert str(path) in err


def test_a_folder_without_a_text_is_refused(cli: Cli, tmp_path: Path) -> None:
    err = refused(cli("compare", "--data", str(tmp_path), "--html", str(tmp_path / "page.html")))
    assert "holds no text file" in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "this is not JSON"),
        (b"{", "this is not JSON"),
        (b"{}", "this is not a record of kind Comparison"),
        (b'{"schema": 99}', "a record of schema 1 is read here; this one has schema 99"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "this is not JSON"),
    ],
    ids=["empty", "half", "no record", "another schema", "no text", "deep"],
)
def test_a_record_that_is_none_is_refused(cli: Cli, tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(data)
    assert message in refused(cli("report", str(path), "--html", str(tmp_path / "page.html")))
    assert not (tmp_path / "page.html").exists()
