"""The making of a race: what dies is made once more, what cannot be made is said, what is slow is stopped."""

import time
from dataclasses import replace
from typing import Any

import pytest

from normula.race import work
from normula.race.pool import Died, Job, Raised, Said
from normula.race.trial import Entry
from normula.race.work import Broken, Saved, Work
from tests.race.inline import Inline, drive, memory, pretended, tiny, untimed

pytestmark = pytest.mark.usefixtures("pretend")

KILLED = Died("a process ended while it worked, by the signal SIGKILL")
LOST = Died("its machine was lost", is_blameless=True)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "advance", pretended)


def reference(**fields: Any) -> dict[str, dict[str, Any]]:
    return {identity: untimed(one) for identity, one in drive(memory(tiny(**fields)), Inline()).items()}


def test_every_run_is_made_once_in_the_order_of_the_grid() -> None:
    grid, engine = tiny(seeds=2), Inline()
    made = drive(memory(grid), engine)
    assert [key for key, _ in engine.given] == [entry.identity for entry in grid.entries]
    assert made.keys() == {entry.identity for entry in grid.entries}


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_number_of_processes_changes_no_result(size: int) -> None:
    made = drive(memory(tiny()), Inline(size=size))
    assert {identity: untimed(one) for identity, one in made.items()} == reference()


def test_a_run_under_which_a_process_dies_is_made_once_more_from_its_last_state() -> None:
    grid, store = tiny(), memory(tiny())
    victim = grid.entries[1].identity
    engine = Inline(dies={victim: [KILLED]})
    made = drive(store, engine, save_seconds=3)
    attempts = [job.arguments[0] for key, job in engine.given if key == victim]
    assert [attempt.state for attempt in attempts] == [None, b"7"]
    assert {identity: untimed(one) for identity, one in made.items()} == reference()
    assert [(identity, what) for _, identity, what in store.events] == [(victim, f"made once more: {KILLED.reason}")]


@pytest.mark.negative
def test_a_run_under_which_it_dies_again_has_failed_and_the_rest_goes_on() -> None:
    grid = tiny()
    victim = grid.entries[1].identity
    made = drive(memory(grid), Inline(dies={victim: [KILLED, KILLED]}))
    assert made[victim].outcome == "failed"
    assert made[victim].note == f"{KILLED.reason}, 2 times; the memory may not be enough for it"
    assert {k: untimed(one) for k, one in made.items() if k != victim} == {
        k: one for k, one in reference().items() if k != victim
    }


def test_a_run_is_not_blamed_for_the_machines_that_were_lost_under_it() -> None:
    grid = tiny()
    victim = grid.entries[0].identity
    made = drive(memory(grid), Inline(dies={victim: [LOST, LOST, KILLED, LOST]}))
    assert {identity: untimed(one) for identity, one in made.items()} == reference()


@pytest.mark.negative
def test_what_a_run_raises_is_its_failure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = tiny()

    def raises(entry: Entry, *args: Any, **options: Any) -> Any:
        if entry.name == "post" and entry.recipe.lr == 1e-3:
            raise RuntimeError("no memory\nfor this one")
        return pretended(entry, *args, **options)

    monkeypatch.setattr(work, "advance", raises)
    made = drive(memory(grid), Inline())
    failed = [one for one in made.values() if one.outcome == "failed"]
    assert [(one.name, one.lr, one.note) for one in failed] == [("post", 1e-3, "RuntimeError: no memory for this one")]
    assert len(made) == 4


@pytest.mark.negative
def test_a_machine_with_other_data_is_found_by_the_identity() -> None:
    entry = tiny().entries[0]
    found = Work(entry=entry, identity="another").job.run(print)
    assert isinstance(found, Broken)
    assert "the data where it ran are not those" in found.reason


@pytest.mark.negative
def test_a_machine_with_another_normula_is_found() -> None:
    entry = tiny().entries[0]
    found = Work(entry=entry, identity=entry.identity, maker="another").job.run(print)
    assert isinstance(found, Broken)
    assert "the versions where it ran are not those" in found.reason


def test_a_run_that_takes_too_long_is_dropped_with_what_it_has() -> None:
    store = memory(tiny(steps=100_000))
    made = drive(store, Inline(), max_seconds=0.05)
    assert {one.outcome for one in made.values()} == {"dropped"}
    for one in made.values():
        assert 0 < len(one.curve) < 100_000
        assert one.note == f"stopped after 0.05 seconds, {len(one.curve)} of 100000 steps made"
        assert one.seconds >= 0.05
    assert store.state(next(iter(made))) == (None, 0.0)


def test_at_the_deadline_runs_stop_where_they_are_and_go_on_later() -> None:
    """Here no time passes, so that all runs begin before the deadline; each then has that much time."""
    grid, store = tiny(steps=300), memory(tiny(steps=300))
    assert drive(store, Inline(), deadline=time.monotonic() + 100) == {}
    assert [store.state(entry.identity) for entry in grid.entries] == [(b"100", 100.0)] * 4
    made = drive(store, Inline())
    assert {identity: untimed(one) for identity, one in made.items()} == reference(steps=300)


def test_after_the_deadline_nothing_is_begun() -> None:
    engine = Inline()
    assert drive(memory(tiny()), engine, deadline=time.monotonic() - 1) == {}
    assert engine.given == []


def test_what_is_finished_is_not_made_again() -> None:
    grid, store = tiny(), memory(tiny())
    done = drive(memory(grid), Inline())[grid.entries[2].identity]
    store.finish(grid.entries[2], replace(done, loss=0.125))
    engine = Inline()
    made = drive(store, engine)
    assert grid.entries[2].identity not in [key for key, _ in engine.given]
    assert made[grid.entries[2].identity].loss == 0.125


def test_progress_tells_each_run_once() -> None:
    told: list[tuple[int, int, str]] = []
    seen = []
    drive(
        memory(tiny()),
        Inline(),
        report=lambda done, of, what: told.append((done, of, what)),
        finished=lambda one: seen.append(one.identity),
    )
    assert [(done, of) for done, of, _ in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert told[0][2].startswith("pre, depth 1, rate 0.001, warmup 0: ")
    assert sorted(seen) == sorted(entry.identity for entry in tiny().entries)


@pytest.mark.negative
def test_an_error_of_the_engine_is_the_failure_of_its_run() -> None:
    class Raises(Inline):
        def give(self, key: str, job: Job) -> None:
            self.events.append((key, Raised(MemoryError("no room"))))

    made = drive(memory(tiny()), Raises())
    assert {(one.outcome, one.note) for one in made.values()} == {("failed", "MemoryError: no room")}


def test_a_state_that_comes_late_does_no_harm() -> None:
    """Said by a process that was lost, heard after its run has been given again."""
    grid, store = tiny(), memory(tiny())
    first = grid.entries[0]
    engine = Inline(size=1, dies={first.identity: [LOST]})
    engine.events.append((first.identity, Said(Saved(b"3"))))
    made = drive(store, engine)
    assert {identity: untimed(one) for identity, one in made.items()} == reference()
    assert store.state(first.identity) == (None, 0.0)
