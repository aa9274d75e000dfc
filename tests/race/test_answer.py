"""The answer of a race as a record."""

import math

import pytest

from normula.race import Entry
from normula.race.trial import failure
from normula.record import Race, from_json, to_json
from tests.race.answers import answered, grid_of, raced, run_of


def loss(entry: Entry) -> float:
    return math.nan if entry.name == "post" and entry.recipe.lr > 1e-2 else 1.0 + entry.recipe.seed / 10


def test_it_goes_through_json_and_comes_back() -> None:
    race = raced(loss, depth=(1, 2), lr=(1e-3, 1e-1), warmup=(0, 4), seeds=2)
    again = from_json(Race, to_json(race))
    assert to_json(again) == to_json(race)
    assert again.standings[0].facet == race.standings[0].facet


def test_the_map_has_a_cell_for_each_setting_of_each_contestant() -> None:
    race = raced(loss, depth=(1, 2), lr=(1e-3, 1e-2, 1e-1), warmup=(0, 4))
    assert len(race.cells) == 2 * 2 * 3 * 2
    assert all(sum(cell.outcomes.values()) == 3 for cell in race.cells)
    diverged = {(cell.name, cell.lr) for cell in race.cells if "diverged" in cell.outcomes}
    assert diverged == {("post", 1e-1)}


def test_one_run_that_stands_under_two_names_counts_for_both() -> None:
    race = raced(lambda entry: 1.0, "pre", "x + f(norm(x))")
    first, second = race.standings
    assert first.loss == second.loss
    assert [trial.name for trial in race.trials] == ["pre", "x + f(norm(x))"] * 3


def test_factors_are_not_told_of_a_race_with_runs_that_failed() -> None:
    grid = grid_of(seeds=2)
    trials = [run_of(entry, 1.0 + (entry.name == "post")) for entry in grid.entries]
    assert answered(grid, trials).shares[0].factors == ("placement",)
    assert answered(grid, [failure(grid.entries[0], "no"), *trials[1:]]).shares == ()


def test_depth_is_a_factor() -> None:
    race = raced(lambda entry: float(entry.spec.layers), depth=(1, 2))
    assert (race.shares[0].factors, race.shares[0].share) == (("depth",), pytest.approx(1.0))


def test_limits_are_kept() -> None:
    grid = grid_of()
    trials = [run_of(entry, 1.0) for entry in grid.entries]
    race = answered(grid, trials, budget={"max_seconds": 5.0})
    assert race.budget == {"max_seconds": 5.0}
    assert (race.planned, race.seconds) == (6, 1.5)
