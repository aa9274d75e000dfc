"""Successive halving: each contestant keeps the better half of its own settings, and nothing is dropped unsaid."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normula.race import work
from normula.race.halving import Question, Setting, cut, rungs
from normula.record import Trial
from tests.race.inline import Inline, drive, memory, pretended, tiny, untimed
from tests.race.trials import trial

LOSSES = st.floats(min_value=0, max_value=9, allow_nan=False) | st.just(math.nan)


def runs_of(*losses: float) -> dict[Setting, list[Trial]]:
    outcomes = ["learned" if math.isfinite(loss) else "diverged" for loss in losses]
    return {
        Setting(10.0**-place, 0): [trial(loss=loss, outcome=outcome)]
        for place, (loss, outcome) in enumerate(zip(losses, outcomes, strict=True))
    }


def kept(notes: dict[Setting, str]) -> list[Setting]:
    return [setting for setting, note in notes.items() if not note]


def test_the_rungs_are_a_quarter_and_half_of_the_steps() -> None:
    assert rungs(400) == (100, 200)
    assert rungs(3) == (1,)
    assert rungs(1) == ()


@given(st.lists(LOSSES, min_size=1, max_size=9))
def test_the_better_half_is_kept_and_of_an_odd_number_one_more(losses: list[float]) -> None:
    runs = runs_of(*losses)
    notes = cut(runs, 10)
    stay = kept(notes)
    assert list(notes) == list(runs)
    assert len(stay) == math.ceil(len(runs) / 2)
    loss = {setting: one.loss if math.isfinite(one.loss) else math.inf for setting, (one,) in runs.items()}
    assert max(loss[one] for one in stay) <= min((loss[one] for one in runs if one not in stay), default=math.inf)


def test_a_setting_that_is_dropped_is_told_where_it_came_and_why() -> None:
    notes = cut(runs_of(2.0, 1.0, 3.0), 25)
    assert list(notes.values()) == [
        "",
        "",
        "halving: after 25 steps its setting came 3 of 3, with a loss of 3; the best had 1",
    ]


def test_all_seeds_of_a_setting_count_together() -> None:
    good, lucky = Setting(1e-3, 0), Setting(1e-2, 0)
    runs = {
        lucky: [trial(loss=0.5), trial(loss=4.0)],
        good: [trial(loss=2.0), trial(loss=2.0)],
    }
    assert kept(cut(runs, 10)) == [good]


def test_a_run_that_could_not_be_made_speaks_neither_for_nor_against_its_setting() -> None:
    first, second = Setting(1e-3, 0), Setting(1e-2, 0)
    broken = trial(loss=math.nan, outcome="failed")
    assert kept(cut({first: [trial(loss=3.0)], second: [trial(loss=2.0), broken]}, 10)) == [second]
    assert kept(cut({first: [trial(loss=3.0)], second: [broken]}, 10)) == [first]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "advance", pretended)


@pytest.mark.usefixtures("pretend")
def test_each_contestant_keeps_its_own_better_half_and_the_rest_is_dropped_at_its_rung() -> None:
    """Held against the losses of the same runs stopped at each rung, without halving."""
    grid = tiny(lr=(1e-4, 1e-3, 1e-2, 1e-1), seeds=2, steps=16)
    made = drive(memory(grid), Inline(), halving=True)
    assert len(made) == grid.size
    by = {(one.name, one.lr, one.seed): one for one in made.values()}

    left = {name: set(grid.lr) for name in ("pre", "post")}
    for step, count in ((4, 2), (8, 1)):
        stopped = [pretended(entry, until=step)[0] for entry in grid.entries]
        loss = {(one.name, one.lr, one.seed): one.loss for one in stopped}
        for name in left:
            mean = {lr: loss[name, lr, 0] + loss[name, lr, 1] for lr in left[name]}
            better = set(sorted(mean, key=mean.__getitem__)[:count])
            for lr, seed in product(left[name] - better, range(2)):
                found = by[name, lr, seed]
                assert (found.outcome, len(found.curve), found.loss) == ("dropped", step, loss[name, lr, seed])
                assert found.note.startswith(f"halving: after {step} steps its setting came ")
            left[name] = better
    for name, rates in left.items():
        for lr, seed in product(rates, range(2)):
            assert by[name, lr, seed].outcome != "dropped"
            assert len(by[name, lr, seed].curve) == 16


@pytest.mark.usefixtures("pretend")
def test_depths_and_other_facets_are_never_held_against_each_other() -> None:
    grid = tiny(depth=(1, 2), lr=(1e-3, 1e-2), batch=(2, 4), norm=("layernorm", "rmsnorm"), init=("xavier", "normal"))
    made = drive(memory(grid), Inline(), halving=True)
    for question in {Question.of(entry) for entry in grid.entries}:
        its = [made[entry.identity] for entry in grid.entries if Question.of(entry) == question]
        assert sorted(one.outcome == "dropped" for one in its) == [False, True]


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize("events", [1, 3, 6, 9, 11])
def test_a_race_that_was_cut_short_at_any_event_comes_to_the_same(events: int) -> None:
    grid = tiny(lr=(1e-4, 1e-3, 1e-2, 1e-1), steps=16)
    whole = drive(memory(grid), Inline(), halving=True)
    store = memory(grid)
    with pytest.raises(KeyboardInterrupt):
        drive(store, Stops(events=events), halving=True)
    parts = store.finished()
    drive(store, Inline(), halving=True)
    assert {identity: untimed(one) for identity, one in store.finished().items()} == {
        identity: untimed(one) for identity, one in whole.items()
    }
    assert parts.items() <= store.finished().items()


class Stops(Inline):
    """Is interrupted after so many events."""

    def __init__(self, events: int) -> None:
        super().__init__(size=3)
        self.left = events

    def wait(self, seconds: float | None = None) -> list[tuple[str, object]]:  # type: ignore[override]
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().wait(seconds)  # type: ignore[return-value]


@pytest.mark.usefixtures("pretend")
def test_a_run_that_failed_and_is_made_again_is_judged_as_its_setting_was() -> None:
    grid = tiny(placements="pre", lr=(1e-3, 1e-1), seeds=2)
    store = memory(grid)
    drive(store, Inline(), halving=True)
    [dropped] = {one.lr for one in store.finished().values() if one.outcome == "dropped"}
    [entry] = [one for one in grid.entries if one.recipe.lr == dropped and one.recipe.seed == 0]
    before = store.finished()[entry.identity]
    store.finish(entry, replace(before, outcome="failed", note="no memory"))
    store.forget(entry.identity)
    drive(store, Inline(), halving=True)
    assert untimed(store.finished()[entry.identity]) == untimed(before)
