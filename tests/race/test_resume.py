"""A race that is killed, at any moment, and gone on with: nothing that was finished is lost or made twice."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import normula as nm
from normula.race import Grid, Store, StoreError
from normula.race.export import csv_text
from normula.race.race import unchanged
from normula.record import Trial, to_dict
from normula.spec import NormulaWarning
from tests.processes import session, wait_until
from tests.race.inline import TINY, Inline, drive, memory, untimed

GRID: dict[str, Any] = {**TINY, "steps": 300, "seeds": 2, "dropout": 0.1}

SCRIPT = f"""
import sys
import normula as nm
if __name__ == "__main__":
    path, resume, halving = sys.argv[1], sys.argv[2] == "resume", sys.argv[3] == "halving"
    what = dict(resume=path) if resume else dict({GRID!r}, out=path, halving=halving)
    nm.race(**what, workers=2, save_seconds=0.02)
"""


def started(path: Path, how: str, halving: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", SCRIPT, str(path), how, halving]
    return subprocess.Popen(words, start_new_session=True, cwd=path.parent)


def workers(leader: int) -> list[int]:
    """The processes that train."""
    found = []
    for pid in session(leader):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        found += [pid] if b"spawn_main" in words else []
    return found


def made(path: Path) -> dict[str, Trial]:
    try:
        with Store.open(path) as store:
            return store.finished()
    except StoreError:  # it is just being made
        return {}


def begun(path: Path) -> int:
    """States and parts that are kept, and runs that are finished: it grows as the race goes on."""
    try:
        with Store.open(path) as store:
            [(states,)], [(parts,)] = (store._rows(f"SELECT count(*) FROM {table}") for table in ("states", "parts"))
            return int(states) + int(parts) + len(store.finished())
    except StoreError:
        return 0


def has_grown(path: Path, above: int) -> bool:
    return begun(path) > above


def has_ended(leader: int) -> bool:
    return not session(leader)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("halving", ["all", "halving"])
def test_a_race_that_is_killed_again_and_again_ends_as_one_that_never_was(tmp_path: Path, halving: str) -> None:
    path, chance = tmp_path / "RUN", random.Random(halving)
    kept: dict[str, Trial] = {}
    for number, how in enumerate(("new", "resume")):
        process = started(path, how, halving)
        try:
            wait_until(partial(has_grown, path, begun(path) + number), seconds=200)
            time.sleep(0.3 * chance.random())
            if victims := workers(process.pid):
                os.kill(chance.choice(victims), signal.SIGKILL)
            time.sleep(0.6 * chance.random())
        finally:
            process.kill()
            process.wait()
        wait_until(partial(has_ended, process.pid))
        now = made(path)
        assert {identity: now[identity] for identity in kept} == kept
        kept = now

    found = nm.race(resume=path, workers=1)

    now = made(path)
    assert {identity: now[identity] for identity in kept} == kept  # their times too: they were not made twice
    store = memory(Grid(**GRID))
    drive(store, Inline(), halving=halving == "halving")
    assert csv_text(found.trials, time=False) == csv_text(store.trials, time=False)
    assert [untimed(trial) for trial in found.trials] == [untimed(trial) for trial in store.trials]


@pytest.fixture
def halfway(tmp_path: Path, inline: None) -> Path:
    """A race of a user's model and text of which the first run is made."""
    (tmp_path / "own.py").write_text("from tests.race.factories import *\nnumber = 1\n")
    (tmp_path / "text.txt").write_text("she sells sea shells on the sea shore. " * 40)
    os.chdir(tmp_path)
    nm.race(**{**TINY, "task": "text"}, data="text.txt", model="own:picky", out="RUN", trials=1, workers=1, context=8)
    return tmp_path / "RUN"


@pytest.fixture(autouse=True)
def back() -> Any:
    here = Path.cwd()
    yield
    os.chdir(here)
    sys.modules.pop("own", None)
    sys.path[:] = [one for one in sys.path if "test_a" not in one]


@pytest.mark.negative
def test_a_race_whose_parts_would_not_fit_together_is_not_gone_on_with(halfway: Path) -> None:
    """Each change is made, said, and undone; then nothing is in the way."""

    def refused(said: str) -> None:
        with pytest.raises(ValueError, match=said):
            nm.race(resume=halfway)

    text, own = halfway.parent / "text.txt", halfway.parent / "own.py"
    before = text.read_text()
    text.write_text(before + "more")
    refused("as its parts would not fit together: the data of the task text have changed. Undo that, or start")
    text.unlink()
    refused("there is no file .*text.txt")
    text.write_text(before)
    code = own.read_text()
    own.write_text(code + "number = 2\n")
    refused("the file of own:picky has changed")
    own.write_text(code)
    with Store.resume(halfway) as store:
        origin = store.origin
        other = replace(origin.environment, versions=origin.environment.versions | {"torch": "1.0"}, python="3.9")
        for changed, said in (
            (replace(origin, code="other"), "the sources of normula have changed"),
            (replace(origin, environment=other), "python was 3.9 and is .*; torch was 1.0 and is"),
        ):
            with store._transaction():
                store._keep(origin=to_dict(changed))
            with pytest.raises(StoreError, match=said):
                unchanged(store)
        elsewhere = replace(origin.environment, machine="riscv64 Plan9")
        with store._transaction():
            store._keep(origin=to_dict(replace(origin, environment=elsewhere)))
        with pytest.warns(NormulaWarning, match="began on riscv64 Plan9 and goes on on .*; the last digits"):
            unchanged(store)
        with store._transaction():
            store._keep(origin=to_dict(origin))
    found = nm.race(resume=halfway, workers=1)
    assert len(found.trials) == found.planned == 4


@pytest.mark.negative
@pytest.mark.usefixtures("inline")
def test_runs_that_failed_are_tried_again_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "RUN"
    first = nm.race(**TINY, out=path, workers=1)
    with Store.resume(path) as store:
        entry = store.grid.entries[1]
        store.finish(entry, replace(first.trials[1], outcome="failed", note="no memory"))
    said: list[str] = []
    found = nm.race(resume=path, workers=1, say=said.append)
    assert said[0] == "1 run that failed is tried again"
    assert [one.outcome for one in found.trials] == [one.outcome for one in first.trials]
    assert [one.seconds == other.seconds for one, other in zip(found.trials, first.trials, strict=True)] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.negative
def test_a_process_that_dies_with_each_run_of_one_contestant_leaves_the_others(tmp_path: Path) -> None:
    found = nm.race(**TINY, model="tests.race.factories:dies", workers=2)
    outcomes = {(one.name, one.lr): (one.outcome, one.note) for one in found.trials}
    for lr in (1e-3, 3e-3):
        assert outcomes["pre", lr][0] != "failed"
        assert outcomes["post", lr] == (
            "failed",
            "a process ended while it worked, with code 9, 2 times; the memory may not be enough for it",
        )
