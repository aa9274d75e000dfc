"""Tables for other programs: stable, exact, and without time the same for two runs of the same grid."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from normula.race.export import COLUMNS, TIMED, csv_text, json_lines, parquet
from normula.race.trial import failure
from normula.record import Trial, from_dict
from tests.race.answers import grid_of, run_of


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    grid = grid_of("pre", "post, final=norm(x)", lr=(1e-3,), seeds=2)
    made = [run_of(entry, 1 / 3 + entry.recipe.seed) for entry in grid.entries]
    return [
        *made[:2],
        run_of(grid.entries[2], math.nan),
        failure(grid.entries[3], 'ValueError: "no", he said\nat once'),
    ]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_of_csv_reads_back_exactly(trials: list[Trial]) -> None:
    found = rows(csv_text(trials))
    assert list(found[0]) == list(COLUMNS)
    for row, trial in zip(found, trials, strict=True):
        assert float(row["loss"]) == trial.loss or (math.isnan(trial.loss) and row["loss"] == "nan")
        assert (row["placement"], row["outcome"], row["note"]) == (trial.name, trial.outcome, trial.note)
        assert (int(row["seed"]), int(row["updates"]), int(row["memory"])) == (
            trial.seed,
            len(trial.curve),
            trial.memory,
        )


def slower(trial: Trial) -> Trial:
    return replace(trial, seconds=trial.seconds * 2, tokens_per_second=1.0, memory=7)


@pytest.mark.parametrize("table", [csv_text, json_lines, parquet])
def test_without_time_a_slower_machine_gives_the_same_bytes(table, trials: list[Trial]) -> None:
    again = [slower(trial) for trial in trials]
    assert table(trials, time=False) == table(again, time=False)
    assert table(trials) != table(again)


def test_without_time_its_columns_are_gone(trials: list[Trial]) -> None:
    assert set(rows(csv_text(trials))[0]) - set(rows(csv_text(trials, time=False))[0]) == set(TIMED)
    assert not set(json.loads(json_lines(trials, time=False).splitlines()[0])) & set(TIMED)


def test_every_field_that_depends_on_time_is_left_out() -> None:
    """A new field of a run that has time in its name must not slip in."""
    timed = {name for name in Trial.__slots__ if "second" in name or "memory" in name or "time" in name}
    assert timed == set(TIMED)


def test_json_lines_are_the_records(trials: list[Trial]) -> None:
    lines = json_lines(trials).splitlines()
    found = [from_dict(Trial, json.loads(line)) for line in lines]
    assert found[:2] == trials[:2]
    assert math.isnan(found[2].loss)
    assert found[3].note == trials[3].note


def test_parquet_has_the_columns_of_the_csv_and_the_curves(trials: list[Trial]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(io.BytesIO(parquet(trials)))
    assert table.column_names == [*COLUMNS, "curve", "evaluated", "evaluations"]
    found = table.to_pylist()
    assert [tuple(row["curve"]) for row in found[:2]] == [trial.curve for trial in trials[:2]]
    assert found[0]["evaluations"] == [trials[0].loss]
    assert found[0]["lr"] == 1e-3


def test_no_runs_make_a_table_with_the_same_types(trials: list[Trial]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    assert csv_text([]) == csv_text(trials).splitlines()[0] + "\n"
    whole, empty = (pq.read_schema(io.BytesIO(parquet(some))) for some in (trials, []))
    assert whole == empty


@pytest.mark.negative
def test_parquet_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"normula\[race\]"):
        parquet([])
