"""Standings and differences: each contestant at its own best setting, with what chance may have done."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from normula.race import Entry
from normula.race.bootstrap import SMALLEST
from normula.race.trial import failure
from normula.record import Race, Standing
from tests.race.answers import answered, grid_of, raced, run_of


def row(race: Race, name: str, depth: int = 2) -> Standing:
    return next(one for one in race.standings if one.name == name and one.facet.depth == depth)


def by_rate(**losses: dict[float, float]) -> Callable[[Entry], float]:
    """By contestant and rate."""
    return lambda entry: losses[entry.name][entry.recipe.lr]


def test_each_is_judged_at_its_own_best_setting() -> None:
    race = raced(by_rate(pre={1e-3: 2.0, 1e-2: 1.0}, post={1e-3: 1.5, 1e-2: math.nan}), lr=(1e-3, 1e-2))
    assert [(one.name, one.lr, one.place) for one in race.standings] == [("pre", 1e-2, 1), ("post", 1e-3, 2)]
    assert race.standings[0].loss.value == pytest.approx(1.0)


def test_the_best_rate_on_the_edge_of_the_grid_is_flagged() -> None:
    race = raced(
        by_rate(pre={1e-3: 2.0, 3e-3: 1.0, 1e-2: 1.5}, post={1e-3: 1.0, 3e-3: 1.5, 1e-2: 2.0}), lr=(1e-3, 3e-3, 1e-2)
    )
    assert row(race, "pre").edges == ()
    assert row(race, "post").edges == ("lowest rate",)


def test_a_rate_that_stands_alone_is_no_edge_and_no_warmup_is_none_either() -> None:
    assert raced(lambda entry: 1.0, "pre").standings[0].edges == ()
    assert raced(lambda entry: 1.0 + entry.recipe.warmup, "pre", warmup=(0, 5)).standings[0].edges == ()
    assert raced(lambda entry: 2.0 - entry.recipe.warmup / 10, "pre", warmup=(0, 5)).standings[0].edges == (
        "longest warmup",
    )


def test_seeds_are_compared_in_pairs() -> None:
    """The seeds differ by a nat, and with each of them the second is 0.1 worse: shown, though the ranges overlap."""
    race = raced(lambda entry: 1.0 + 0.5 * entry.recipe.seed + (0.1 if entry.name == "post" else 0.0))
    (gap,) = race.differences
    assert (gap.better, gap.worse, gap.shown) == ("pre", "post", True)
    assert (gap.gap.value, gap.gap.low, gap.gap.high) == pytest.approx((0.1, 0.1, 0.1))


def test_no_difference_is_shown_where_the_seeds_disagree() -> None:
    race = raced(lambda entry: 2.0 + (0.3 if (entry.name == "pre") == (entry.recipe.seed == 0) else 0.0))
    assert not race.differences[0].shown
    assert [one.place for one in race.standings] == [1, 1]


@pytest.mark.parametrize(("gap", "shown"), [(SMALLEST * 1.01, True), (SMALLEST * 0.99, False)])
def test_a_gap_too_small_to_matter_is_none(gap: float, shown: bool) -> None:
    race = raced(lambda entry: 1.0 + (gap if entry.name == "post" else 0.0))
    assert race.differences[0].shown is shown


def test_one_seed_shows_no_difference() -> None:
    race = raced(lambda entry: 2.0 if entry.name == "post" else 1.0, seeds=1)
    assert not race.differences[0].shown
    assert math.isnan(race.differences[0].gap.low)
    assert [one.place for one in race.standings] == [1, 1]


def test_places_count_those_that_are_shown_to_be_better() -> None:
    losses = {"pre": 1.0, "post": 1.5, "peri": 1.01, "deepnorm": 2.0}
    race = raced(lambda entry: losses[entry.name], *losses)
    assert [(one.name, one.place) for one in race.standings] == [("pre", 1), ("peri", 1), ("post", 3), ("deepnorm", 4)]


def test_facets_are_ranked_apart() -> None:
    race = raced(lambda entry: 1.0 + ((entry.name == "pre") == (entry.spec.layers == 1)), depth=(1, 3))
    assert [(one.facet.depth, one.name) for one in race.standings] == [
        (1, "post"),
        (1, "pre"),
        (3, "pre"),
        (3, "post"),
    ]


def test_a_contestant_with_weights_of_its_own_stands_in_every_facet() -> None:
    race = raced(lambda entry: 1.0, "pre", "post, init=normal", init=("xavier", "torch"))
    assert [(one.facet.init, one.name) for one in race.standings] == [
        ("xavier", "pre"),
        ("xavier", "post, init=normal"),
        ("torch", "pre"),
        ("torch", "post, init=normal"),
    ]
    assert all(one.runs == 3 for one in race.standings)


def test_the_compute_that_each_got_is_in_its_standing() -> None:
    race = raced(lambda entry: 1.0, lr=(1e-3, 1e-2))
    one = row(race, "pre")
    assert (one.runs, one.steps, one.seconds, one.tokens) == (6, 120, 1.5, 1200)


def test_with_unequal_steps_all_are_compared_at_the_last_that_every_run_has_made() -> None:
    """Post ends lower, and its runs stop at 20, 15 and 12 of 20: at 12 it is behind."""
    grid = grid_of()
    trials = []
    for entry in grid.entries:
        stop = {0: 20, 1: 15, 2: 12}[entry.recipe.seed] if entry.name == "post" else 20
        done = run_of(entry, {"pre": 1.0, "post": 1.2}[entry.name] if stop == 20 else 2.0, steps=stop)
        trials.append(done if stop == 20 else replace(done, outcome="dropped", note="stopped after 5 seconds"))
    race = answered(grid, trials)
    assert {(one.at, one.held_out) for one in race.standings} == {(12, False)}
    pre = [trial for trial in trials if trial.name == "pre"]
    assert row(race, "pre").loss.value == pytest.approx(sum(sum(t.curve[2:12]) / 10 for t in pre) / 3)


def test_a_run_that_halving_dropped_does_not_shorten_the_race() -> None:
    grid = grid_of("pre", lr=(1e-3, 1e-2))
    trials = []
    for entry in grid.entries:
        halved = entry.recipe.lr == 1e-2
        done = run_of(entry, 1.0, steps=5 if halved else 20)
        trials.append(
            replace(done, outcome="dropped", note="halving: after 5 steps its setting came 2 of 2") if halved else done
        )
    race = answered(grid, trials)
    (one,) = race.standings
    assert (one.at, one.held_out, one.lr) == (20, True, 1e-3)
    assert one.outcomes == {"learned": 3, "dropped": 3}
    assert math.isnan(one.sensitivity.value)


def test_a_setting_with_a_run_that_failed_is_not_the_best() -> None:
    grid = grid_of("pre", lr=(1e-3, 1e-2))
    trials = [
        run_of(entry, 0.5 if entry.recipe.lr == 1e-2 else 1.0)
        if entry.recipe.lr == 1e-3 or entry.recipe.seed
        else failure(entry, "no memory")
        for entry in grid.entries
    ]
    (one,) = answered(grid, trials).standings
    assert one.lr == 1e-3
    assert one.outcomes == {"learned": 5, "failed": 1}


def test_an_interrupted_race_compares_the_seeds_that_are_whole() -> None:
    """The second seed of the better rate is missing: the first seed alone decides, for both contestants."""
    grid = grid_of(lr=(1e-3, 1e-2), seeds=2)
    trials = [
        run_of(entry, 0.5 if entry.recipe.lr == 1e-2 else 1.0)
        for entry in grid.entries
        if not (entry.recipe.seed == 1 and entry.recipe.lr == 1e-2 and entry.name == "pre")
    ]
    race = answered(grid, trials)
    assert {one.lr for one in race.standings} == {1e-2}
    assert all(math.isnan(one.loss.low) for one in race.standings)


def test_who_has_no_run_that_counts_comes_last_and_has_no_place() -> None:
    grid = grid_of()
    trials = [run_of(entry, 1.0) if entry.name == "pre" else failure(entry, "ValueError: no") for entry in grid.entries]
    race = answered(grid, trials)
    assert [(one.name, one.place) for one in race.standings] == [("pre", 1), ("post", 0)]
    assert race.differences == ()
