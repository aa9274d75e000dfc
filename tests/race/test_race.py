"""A race from Python: the same thing as the command, with the same checks."""

import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import normula as nm
from normula.race import Grid, Job, Limits, StoreError, grid_of, limits, outlook, read, run
from normula.race import race as race_of
from normula.race.estimate import Estimate, duration, estimate
from normula.race.pool import Done, Pool
from normula.race.trial import at_hand
from normula.race.work import Pace
from tests.race.inline import TINY, Inline, tiny, untimed


def test_the_runs_are_those_that_are_made_one_by_one() -> None:
    assert nm.race is race_of
    said: list[str] = []
    found = nm.race(**TINY, workers=2, say=said.append)
    assert [untimed(one) for one in found.trials] == [untimed(run(entry)) for entry in tiny().entries]
    assert (found.planned, found.note, found.budget) == (4, "", {})
    assert found.grid == tiny().to_dict()
    assert len(said) == 1
    assert said[0].startswith("4 runs to make, about ")
    assert said[0].endswith(" on 2 workers")


@pytest.mark.usefixtures("inline")
def test_a_number_of_trials_is_the_first_of_the_grid_and_the_rest_comes_with_another(tmp_path: Path) -> None:
    path = tmp_path / "RUN"
    first = nm.race(**TINY, out=path, workers=1, trials=2)
    assert [one.identity for one in first.trials] == [entry.identity for entry in tiny().entries[:2]]
    assert first.note == "the first 2 runs of the grid"
    assert first.budget == {"trials": 2}
    again = nm.race(resume=path, workers=1, trials=2)
    assert again.trials == first.trials
    whole = nm.race(resume=path, workers=1)
    assert whole.trials[:2] == first.trials
    assert (len(whole.trials), whole.note) == (4, "")
    assert whole.seconds > first.seconds


@pytest.mark.usefixtures("inline")
def test_minutes_that_are_over_keep_what_is_half_made(tmp_path: Path) -> None:
    path = tmp_path / "RUN"
    fields: dict[str, Any] = {**TINY, "placements": "pre", "lr": 1e-3, "steps": 20_000}
    first = nm.race(**fields, out=path, workers=1, minutes=0.02)
    assert first.trials == ()
    assert first.note == "stopped after 0.02 minutes"
    found = nm.race(resume=path, workers=1, minutes=0.02)
    assert found.trials == ()


@pytest.mark.usefixtures("inline")
def test_what_belongs_to_the_race_is_kept_with_it(tmp_path: Path) -> None:
    """A limit of time and halving hold for all its sessions."""
    path = tmp_path / "RUN"
    fields: dict[str, Any] = {**TINY, "placements": "pre", "lr": 1e-3, "steps": 20_000, "seeds": 2}
    first = nm.race(**fields, out=path, workers=1, trials=1, max_seconds=0.05)
    second = nm.race(resume=path, workers=1)
    assert [one.outcome for one in (*first.trials, *second.trials)] == ["dropped"] * 3
    assert second.budget == {"max_seconds": 0.05}
    assert "stopped after 0.05 seconds" in second.trials[1].note


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(workers=0), "workers is a whole number of at least 1, not 0"),
        (dict(trials=0), "trials is a whole number"),
        (dict(minutes=0), "minutes is a positive number, not 0"),
        (dict(minutes=math.nan), "minutes is a positive number, not nan"),
        (dict(max_seconds=-1), "max_seconds is a positive number"),
        (dict(engine="rya"), "engine is one of local, ray, not 'rya'; did you mean 'ray'"),
        (dict(address="auto"), "an address is that of a Ray cluster"),
        (dict(halving=True, trials=3), "halving compares all settings"),
        (dict(seeds=20_000), "this grid has 80000 runs, and more than 10000"),
        (dict(lr=()), "lr needs one or more"),
        (dict(heads=3), "width must be divisible by heads"),
        (dict(log=["tensorbord:F"]), "did you mean 'tensorboard'"),
        (dict(log=["tensorboard"]), "a log is one of tensorboard:FOLDER"),
        (dict(device="cuda:77"), "there is no device 'cuda:77' here"),
        (dict(data=str(Path(__file__)), task="copy"), "the copy task makes its own data"),
        (dict(model="tests.race.nothing:here"), "there is no module"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_before_any_file_is_made(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        nm.race(**(TINY | fields), out=tmp_path / "RUN")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.negative
def test_a_race_begins_or_goes_on_but_not_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a race needs placements"):
        nm.race()
    for fields in (dict(placements="pre"), dict(steps=3), dict(out="other"), dict(halving=True)):
        with pytest.raises(ValueError, match="leave out all but resume"):
            nm.race(resume=tmp_path / "RUN", **fields)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="there is no race"):
        nm.race(resume=tmp_path / "RUN")


@pytest.mark.parametrize(("warmup", "steps"), [(0, 150), ((0, 50), 150), ((0, 200), 400), ([200, 300], 600)])
def test_steps_that_are_left_out_are_enough_for_the_warmup(warmup: Any, steps: int) -> None:
    assert grid_of("pre", warmup=warmup).steps == steps
    with pytest.raises(ValueError, match="a warmup is from 0 to fewer than the 9 steps"):
        grid_of("pre", warmup=200, steps=9)


@pytest.mark.usefixtures("inline")
def test_files_are_found_again_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("she sells sea shells on the sea shore. " * 40)
    monkeypatch.chdir(tmp_path)
    fields = {**TINY, "task": "text", "data": "text.txt", "context": 8}
    nm.race(**fields, out="RUN", trials=1, workers=1)
    monkeypatch.chdir("/")
    assert len(nm.race(resume=tmp_path / "RUN", workers=1).trials) == 4


@pytest.mark.usefixtures("inline")
def test_a_race_is_read_where_its_data_are_not(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("she sells sea shells on the sea shore. " * 40)
    found = nm.race(**{**TINY, "task": "text", "data": text, "context": 8}, out=tmp_path / "RUN", workers=1)
    text.unlink()
    at_hand.cache_clear()
    again = read(tmp_path / "RUN")
    assert replace(again, seconds=found.seconds) == found


def test_the_time_of_each_size_is_that_of_its_updates() -> None:
    """A depth that is twice as deep takes longer; one that was not timed is judged by its neighbour."""
    grid = tiny(depth=(1, 12), steps=1000)
    found = estimate(Inline(), grid.entries, halving=False)
    shallow, deep = (found.of(entry) for entry in (grid.entries[0], grid.entries[-1]))
    assert deep > 2 * shallow > 0
    once = 2 * sum(pace.once for pace in found.times.values())  # of two placements
    assert found.all(grid.entries) == pytest.approx(4 * (shallow + deep) / found.workers + once)
    middle = found.of(tiny(depth=6, steps=1000).entries[0])
    assert shallow < middle < deep


def test_many_sizes_are_not_all_timed() -> None:
    engine = Inline()
    found = estimate(engine, tiny(depth=tuple(range(1, 40))).entries, halving=False)
    assert len(engine.given) == len(found.times) == 9
    assert {(1, 8, 4), (39, 8, 4)} <= set(found.times)


def test_halving_makes_a_part_of_the_updates() -> None:
    """Four settings: 4 to a quarter, 2 to half, 1 to the end, of 4."""
    entries = tiny(placements="pre", lr=(1e-4, 1e-3, 1e-2, 1e-1), steps=16).entries
    found = estimate(Inline(), entries, halving=True)
    assert found.share == (4 * 4 + 2 * 4 + 1 * 8) / (4 * 16)


def test_an_estimate_learns_from_the_runs_that_are_made() -> None:
    entries = tiny().entries
    found = Estimate(times={(1, 8, 4): Pace(0.0, 0.0, 1.0)}, share=1.0, workers=2, steps=8)
    assert found.all(entries) == 4 * 8 / 2
    trial = run(entries[0])
    found.took(entries[0], replace(trial, seconds=16.0))
    assert found.all(entries[1:]) == 3 * 8 / 2 * 2


def test_what_is_compiled_once_is_counted_once_for_each_kind_and_process() -> None:
    """Two placements: three runs of each, on two processes, are four times compiled, side by side."""
    entries = tiny(lr=(1e-3, 3e-3, 1e-2)).entries
    found = Estimate(times={(1, 8, 4): Pace(10.0, 0.0, 0.0)}, share=1.0, workers=2, steps=8)
    assert found.all(entries) == 20.0
    assert found.all(entries[:1]) == 5.0  # one of the processes has nothing to compile
    found.took(entries[0], run(entries[0]))
    assert found.all(entries[1:]) == 10.0


@pytest.mark.parametrize(("plain", "compiled", "chosen"), [(90.0, 30.0, "flax"), (90.0, 95.0, "torch")])
@pytest.mark.usefixtures("inline")
def test_the_framework_is_the_one_that_was_timed_to_be_the_sooner(
    monkeypatch: pytest.MonkeyPatch, plain: float, compiled: float, chosen: str
) -> None:
    entries = tiny().entries
    times = {"torch": plain, "flax": compiled}
    monkeypatch.setattr(
        sys.modules["normula.race.soonest"],
        "estimate",
        lambda engine, found, *, halving: Estimate(
            {(1, 8, 4): Pace(0.0, times[found[0].framework] / len(entries), 0.0)}, share=1.0, workers=1, steps=8
        ),
    )
    said: list[str] = []
    found = nm.race(**TINY, framework="soonest", trials=4, workers=1, say=said.append)
    assert said[0] == f"made in {chosen}: about {duration(plain)} in torch, {duration(compiled)} in flax"
    assert found.grid["framework"] == chosen


@pytest.mark.usefixtures("inline")
def test_a_short_race_is_made_where_nothing_is_compiled() -> None:
    said: list[str] = []
    found = nm.race(**TINY, framework="soonest", workers=1, say=said.append)
    assert found.grid["framework"] == "torch"
    assert "too short for a compiled step to be worth timing" in said[0]


@pytest.mark.usefixtures("inline")
def test_a_model_of_ones_own_is_made_in_its_framework() -> None:
    said: list[str] = []
    found = nm.race(
        **TINY | {"placements": "pre"},
        model="tests.race.factories:picky",
        framework="soonest",
        workers=1,
        say=said.append,
    )
    assert found.grid["framework"] == "torch"
    assert "a model of your own is raced in torch" in said[0]


@pytest.mark.negative
def test_a_size_that_cannot_be_timed_makes_the_time_unknown() -> None:
    grid = tiny(placements="post", model="tests.race.factories:picky")
    found = estimate(Inline(), grid.entries, halving=False)
    assert math.isnan(found.all(grid.entries))
    assert duration(math.nan) == "unknown"


@pytest.mark.usefixtures("inline")
def test_the_outlook_counts_what_is_left() -> None:
    grid = tiny()
    made = {grid.entries[0].identity}
    found = outlook(grid, Limits(), made=made)
    assert (found.runs, found.left, found.workers) == (4, 3, 2)
    assert found.seconds > 0
    assert outlook(grid, Limits(), made={entry.identity for entry in grid.entries}).left == 0


def test_each_gpu_takes_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two GPUs, each process sees one of them."""

    class Room:
        @staticmethod
        def gpus() -> int:
            return 2

    monkeypatch.setattr(limits, "room", lambda framework: Room)
    monkeypatch.setattr(limits, "cores", lambda: 16)
    grid = Grid(**{**TINY, "device": "cpu"})
    object.__setattr__(grid, "device", "cuda")
    with Limits().opened(grid) as engine:
        assert engine.size == 8
        assert isinstance(engine, Pool)
        seen = set()
        for place in range(2):
            engine.give(str(place), Job(visible))
        while engine.busy:
            seen |= {event.result for _, event in engine.wait() if isinstance(event, Done)}
    assert seen == {"0", "1"}


def visible() -> str | None:
    time.sleep(0.1)
    return os.environ.get("CUDA_VISIBLE_DEVICES")
