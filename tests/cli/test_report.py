"""The command `report`: the page, the tables and the figures of a race that was kept, or was printed as JSON."""

import csv
import io
import json
from pathlib import Path

import pytest

from normula.race import Store
from normula.race.origin import Origin
from normula.record import Race, from_json, to_json
from tests.cli.conftest import Cli
from tests.race.answers import grid_of, run_of
from tests.report.races import RACES


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a race."""
    path, grid = tmp_path_factory.mktemp("race") / "RUN", grid_of("pre", "post", seeds=1)
    with Store.create(path, grid, Origin.of(grid), {}) as store:
        for entry in grid.entries:
            store.finish(entry, run_of(entry, 1.0))
    return path


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """A race as JSON."""
    path = tmp_path / "race.json"
    path.write_text(to_json(RACES["mixed"]))
    return path


def test_the_page_of_a_race_stands_beside_it(cli: Cli, kept: Path) -> None:
    code, out, err = cli("report", str(kept))
    assert (code, out, err) == (0, "", f"page written to {kept}.html\n")
    assert "Pre-LN against Post-LN" in Path(f"{kept}.html").read_text()


def test_a_race_may_be_called_anything(cli: Cli, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "results.json"
    other.write_bytes(kept.read_bytes())
    assert cli("report", str(other)).code == 0
    assert (tmp_path / "results.html").exists()


def test_tables_are_written_where_they_are_asked_for_and_nothing_else(cli: Cli, kept: Path, tmp_path: Path) -> None:
    names = {name: str(tmp_path / f"runs.{name}") for name in ("csv", "jsonl", "parquet")}
    words = [word for name, path in names.items() for word in (f"--{name}", path)]
    code, _, err = cli("report", str(kept), *words)
    assert code == 0
    assert [line.split()[0] for line in err.splitlines()] == ["csv", "parquet", "jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.csv", "runs.jsonl", "runs.parquet"]
    rows = list(csv.DictReader(io.StringIO(Path(names["csv"]).read_text())))
    assert [row["placement"] for row in rows] == ["pre", "post"]
    assert "seconds" in rows[0]


@pytest.mark.negative
def test_nothing_is_written_over_a_race_nor_twice_to_one_file(cli: Cli, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(kept.read_bytes())
    for words, said in (
        (("--csv", str(kept)), "the record that is read"),
        (("--jsonl", str(other)), "a race"),
        (("--html", str(tmp_path / "one"), "--csv", str(tmp_path / "one")), "what --html writes"),
    ):
        code, _, err = cli("report", str(kept), *words)
        assert code == 2
        assert said in err
    assert other.read_bytes() == kept.read_bytes()


def test_without_time_two_reports_are_the_same_to_the_byte(cli: Cli, kept: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        assert cli("report", str(kept), "--csv", str(path), "--no-time").code == 0
    assert first.read_bytes() == second.read_bytes()
    assert "seconds" not in first.read_text().splitlines()[0].split(",")


def test_a_race_that_was_printed_makes_the_same_page(cli: Cli, kept: Path, tmp_path: Path) -> None:
    one, other, record = (tmp_path / name for name in ("a.html", "b.html", "record.json"))
    _, out, _ = cli("report", str(kept), "--html", str(one), "--json")
    record.write_text(out)
    assert from_json(Race, out).planned == 2
    assert cli("report", str(record), "--html", str(other)).code == 0
    assert one.read_text() == other.read_text()


def test_json_on_stdin_is_read(cli: Cli, printed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(printed.read_text()))
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("report", "-", "--json")
    assert (code, err) == (0, "page written to race.html\n")
    assert json.loads(out) == json.loads(printed.read_text())


def test_figures_are_written_into_a_folder_that_is_made(cli: Cli, printed: Path, tmp_path: Path) -> None:
    assert cli("report", str(printed), "--svg", str(tmp_path / "a" / "b"), "--png", str(tmp_path / "c")).code == 0
    svg, png = (sorted(path.stem for path in (tmp_path / name).iterdir()) for name in ("a/b", "c"))
    assert svg == png
    assert "map-01-pre-ln" in svg
    assert (tmp_path / "c" / "map-01-pre-ln.png").read_bytes().startswith(b"\x89PNG")


def refused(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    return err


@pytest.mark.negative
def test_what_would_have_no_effect_is_refused(cli: Cli, printed: Path) -> None:
    assert "--no-time is about tables" in refused(cli("report", str(printed), "--no-time"))
    assert "--no-time is about tables" in refused(cli("report", str(printed), "--no-time", "--html", "page.html"))


@pytest.mark.negative
def test_a_folder_that_cannot_be_one_is_refused(cli: Cli, printed: Path) -> None:
    assert "figures lie in a folder" in refused(cli("report", str(printed), "--svg", str(printed)))


@pytest.mark.negative
def test_a_table_that_cannot_be_written_is_refused_before_the_work(cli: Cli, kept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    where = tmp_path / "no" / "runs.csv"
    assert "folder" in refused(cli("report", str(kept), "--html", str(page), "--csv", str(where)))
    assert not page.exists()


@pytest.mark.negative
@pytest.mark.parametrize(
    "data", [b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 4080], ids=["cut", "empty pages"]
)
def test_a_damaged_file_is_refused(cli: Cli, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "RUN"
    path.write_bytes(data)
    assert str(path) in refused(cli("report", str(path)))


@pytest.mark.negative
@pytest.mark.parametrize("name", [".", "nowhere.db"])
def test_what_is_no_file_is_refused(cli: Cli, name: str) -> None:
    assert f"{name} cannot be read" in refused(cli("report", name))
