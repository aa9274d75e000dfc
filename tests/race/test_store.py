"""A race in one file: what is in it stays in it, and what is not a race is told apart."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from normula.race import Store, StoreError
from normula.race.store import SCHEMA
from normula.race.trial import failure
from normula.record import Evaluation, Snapshot, Trial
from tests.processes import wait_until
from tests.race.inline import origin, tiny


def new(path: Path | None) -> Store:
    return Store.create(path, tiny(), origin(), {"max_seconds": 3.0})


def some(store: Store, place: int = 0, **fields: object) -> Trial:
    """A run of the store's grid, with numbers that are hard to write down."""
    values = dict(
        outcome="learned",
        curve=(0.1 + 0.2, float("nan"), float("inf"), 5e-324, -0.0),
        evaluations=(Evaluation(step=1, loss=1 / 3, accuracy=float("nan")),),
        snapshots=(Snapshot(step=0, gradient=1e300, gradients=(1.0, float("-inf")), rms=(0.5,)),),
        spikes=(3, 4),
    )
    return replace(failure(store.grid.entries[place], ""), **(values | fields))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "RUN"


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_was_kept_comes_back_to_the_last_bit(path: Path, where: str) -> None:
    with new(path if where == "file" else None) as store:
        entry, trial = store.grid.entries[0], some(store)
        store.save(trial.identity, b"\0state", 2.5)
        assert store.state(trial.identity) == (b"\0state", 2.5)
        store.finish(entry, trial)
        assert repr(store.trials) == repr((trial,))
        assert store.state(trial.identity) == (None, 0.0)
        assert store.planned == 4
        assert store.grid.digest == store.digest == tiny().digest
        assert store.origin == origin()
        assert store.budget == {"max_seconds": 3.0}


def test_each_run_is_there_at_once_for_who_reads(path: Path) -> None:
    with new(path) as store:
        for place, entry in enumerate(store.grid.entries):
            store.finish(entry, some(store, place))
            with Store.open(path) as other:
                assert len(other.trials) == place + 1


def test_runs_come_in_the_order_of_the_grid(path: Path) -> None:
    with new(path) as store:
        for place in (2, 0, 3, 1):
            store.finish(store.grid.entries[place], some(store, place))
        assert [one.identity for one in store.trials] == [entry.identity for entry in store.grid.entries]


def test_a_run_that_the_grid_has_under_two_names_is_kept_once_and_told_twice(path: Path) -> None:
    grid = tiny(placements="x + f(x)", lr=1e-3, init=("own", "xavier_qkv"))
    assert len({entry.identity for entry in grid.entries}) == 1
    with Store.create(path, grid, origin(), {}) as store:
        store.finish(grid.entries[0], some(store))
        assert [(one.init, one.identity) for one in store.trials] == [
            (entry.init, entry.identity) for entry in grid.entries
        ]


def test_reading_changes_nothing(path: Path) -> None:
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store))
    before = path.read_bytes()
    with Store.open(path) as store:
        assert len(store.trials) == 1
    assert path.read_bytes() == before


def test_seconds_add_up_over_sessions(path: Path) -> None:
    with new(path) as store:
        store.note("something")
    with Store.open(path) as store:
        first = store.seconds
    with Store.resume(path) as store:
        assert store.seconds >= first > 0


def test_what_happened_is_kept_with_its_time(path: Path) -> None:
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store, outcome="failed", note="no memory"))
        store.note("made once more")
        [(_, identity, what), (_, nobody, again)] = store.events
    assert (identity, what, nobody, again) == (
        some_identity(),
        "failed: no memory",
        None,
        "made once more",
    )


def some_identity() -> str:
    return tiny().entries[0].identity


def test_a_run_that_failed_can_be_forgotten(path: Path) -> None:
    with new(path) as store:
        trial = some(store, outcome="failed")
        store.finish(store.grid.entries[0], trial)
        store.forget(trial.identity)
        assert store.trials == ()


@pytest.mark.negative
def test_a_second_process_is_told_who_has_the_file(path: Path) -> None:
    with new(path):
        code = f"from normula.race import Store; Store.resume({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert f"RUN is being written by another process, {os.getpid()}; wait for it" in done.stderr
        with pytest.raises(StoreError, match="is being written"):
            Store.resume(path)
    Store.resume(path).close()


@pytest.mark.negative
def test_what_is_no_race_is_told_apart(path: Path, tmp_path: Path) -> None:
    for wrong, said in {
        tmp_path / "none": "there is no race",
        tmp_path: r"cannot be read \(Is a directory\)",
    }.items():
        for opened in (Store.open, Store.resume):
            with pytest.raises(StoreError, match=said):
                opened(wrong)
    path.write_text("loss,rate\n")
    with pytest.raises(StoreError, match="is not a race; a race is an SQLite file"):
        Store.resume(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE other (x)")
    with pytest.raises(StoreError, match="is not a race, but some other SQLite file"):
        Store.resume(path)
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="holds no race yet; start it again with --out"):
        Store.resume(path)
    new(path).close()  # an empty file, as a kill at the very start leaves it, is in nobody's way


def test_a_race_that_never_began_is_in_nobodys_way(path: Path) -> None:
    new(path).close()
    with Store.create(path, tiny(steps=9), origin(), {}) as store:
        assert store.grid.steps == 9
        assert store.budget == {}


def test_what_is_left_is_one_file(path: Path) -> None:
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store))
        with Store.open(path) as other:
            assert len(other.trials) == 1
    Store.open(path).close()
    assert {one.name for one in path.parent.iterdir()} == {"RUN", "RUN.lock"}


@pytest.mark.negative
def test_a_file_that_exists_is_never_written_over(path: Path, tmp_path: Path) -> None:
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="RUN exists; go on with it by --resume"):
        new(path)
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="is a folder"):
        new(tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        new(tmp_path / "no" / "RUN")


@pytest.mark.negative
def test_a_newer_schema_is_said_and_left_alone(path: Path) -> None:
    new(path).close()
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = path.read_bytes()
    for opened in (Store.open, Store.resume):
        with pytest.raises(StoreError, match=f"has schema {SCHEMA + 1}, and this normula knows up to {SCHEMA}"):
            opened(path)
    assert path.read_bytes() == before


@pytest.mark.negative
def test_a_damaged_file_is_said(path: Path) -> None:
    with new(path) as store:
        for place, entry in enumerate(store.grid.entries):
            store.finish(entry, some(store, place, curve=(1.0,) * 5000))
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + os.urandom(len(whole) - 8192))
    with pytest.raises(StoreError, match=r"RUN (is damaged|cannot be read)"):
        Store.resume(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"RUN (is damaged|cannot be read)"):
        Store.resume(path)


@pytest.mark.negative
@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder in which nobody can write")
def test_a_folder_in_which_nothing_can_be_written_is_said() -> None:
    with pytest.raises(StoreError, match="/sys/kernel/RUN cannot be written"):
        new(Path("/sys/kernel/RUN"))


@pytest.mark.negative
def test_a_full_disk_is_said_and_loses_nothing(path: Path) -> None:
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store))
        [(pages,)] = store._base.execute("PRAGMA page_count")
        store._base.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"disk is full\); what was finished before is kept.*--resume"):
            store.finish(store.grid.entries[1], some(store, 1, curve=(1.0,) * 9999))
        assert len(store.trials) == 1
    with Store.resume(path) as store:
        assert len(store.trials) == 1
        store.finish(store.grid.entries[1], some(store, 1, curve=(1.0,) * 9999))
        assert len(store.trials) == 2


WRITES = """
import resource, signal, sys
from tests.race.test_store import new, some, Path, replace, SomeError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = new(Path(sys.argv[1]))
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
trial, entry = some(store, curve=(1.0,) * 2000), store.grid.entries[0]
for number in range(100_000):
    try:
        store.finish(entry, replace(trial, identity=str(number)))
    except SomeError as error:
        sys.exit(str(error))
    print(number, flush=True)
"""
SomeError = StoreError


@pytest.mark.negative
def test_a_limit_of_the_file_size_is_said_and_loses_nothing(path: Path) -> None:
    words = [sys.executable, "-c", WRITES, path, "300000"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert "cannot be read or written" in done.stderr
    assert "Traceback" not in done.stderr
    kept = len(done.stdout.splitlines())
    assert kept > 3
    with Store.resume(path) as store:
        assert len(store.finished()) == kept


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_kill_in_the_middle_of_writing_loses_nothing_that_was_finished(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITES, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(50)]
    writer.kill()
    told += writer.stdout.readlines()
    writer.wait()
    with Store.resume(path) as store:
        kept = store.finished()
        assert {line.strip() for line in told if line.endswith("\n")} <= set(kept)
        assert len(kept) <= len(told) + 1
    wait_until(lambda: writer.poll() is not None)


def test_nothing_in_the_file_is_pickled(path: Path) -> None:
    """Texts and numbers, and the states as the framework writes them."""
    with new(path) as store:
        store.finish(store.grid.entries[0], some(store))
        store.part(some_identity(), 2, some(store), b"state")
        tables = [name for (name,) in store._rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kinds = {type(value) for table in tables for row in store._rows(f"SELECT * FROM {table}") for value in row}
    assert kinds <= {str, int, float, bytes, type(None)}
    with Store.open(path) as store:
        blobs = [state for (state,) in store._rows("SELECT state FROM states")]
    assert blobs == [b"state"]
