"""What a race says in words, from runs made by hand."""

import math
from dataclasses import replace

import pytest

from normula.catalog import placement, placements
from normula.formula import Formula
from normula.race import Entry
from normula.race.structure import nonstandard
from normula.race.trial import failure
from normula.record import Race
from tests.race.answers import answered, grid_of, raced, run_of, said

COPY_TASK = {
    (6, "post", 0): (0.06, 0.06, 0.06),
    (6, "post", 10): (0.09, 0.09, 0.09),
    (6, "pre", 0): (0.06, 0.06, 0.06),
    (6, "pre", 10): (0.10, 0.10, 0.10),
    (18, "post", 0): (0.86, 2.67, 2.32),
    (18, "post", 10): (0.12, 0.11, 0.13),
    (18, "pre", 0): (0.06, 0.06, 0.06),
    (18, "pre", 10): (0.09, 0.10, 0.09),
}
"""Final losses of a copy task by depth, contestant and warmup, three seeds each, measured with Xavier weights."""


def copy_task(entry: Entry) -> float:
    if entry.spec.init == "torch":
        return 0.06
    return COPY_TASK[entry.spec.layers, entry.name or "", entry.recipe.warmup][entry.recipe.seed]


@pytest.fixture(scope="module")
def copied() -> Race:
    return raced(copy_task, depth=(6, 18), warmup=(0, 10))


def test_a_deep_stack_that_needs_warmup_is_told_from_one_that_does_not(copied: Race) -> None:
    shallow, deep = said(copied, "headline")
    assert shallow == "Depth 6: no difference is shown."
    assert deep.startswith(
        "Depth 18: Post-LN needs warmup; Pre-LN does not. At its best setting each, Pre-LN ends below"
    )


def test_with_weights_that_do_no_harm_there_is_no_difference_at_any_depth() -> None:
    race = raced(copy_task, depth=(6, 18), warmup=(0, 10), init=("torch",))
    assert said(race, "headline") == ["No difference is shown at any depth."]


def test_no_difference_anywhere_is_said_once() -> None:
    race = raced(lambda entry: 1.0, depth=(1, 2), init=("xavier", "torch", "normal"))
    assert said(race, "headline") == ["No difference is shown anywhere in the grid."]


def test_initial_weights_are_named_where_they_decide() -> None:
    race = raced(copy_task, depth=(6, 18), warmup=(0, 10), init=("xavier", "torch"))
    assert said(race, "headline")[-1] == (
        "Post-LN needs warmup with Xavier weights, not so with PyTorch's default weights: the initial weights decide."
    )
    assert "PyTorch's default weights: no difference is shown at any depth." in said(race, "headline")
    assert "initial weights" in said(race, "factor")[0]


def test_initial_weights_are_named_where_a_difference_is_shown_under_some_alone() -> None:
    race = raced(
        lambda entry: 1.5 if (entry.spec.init, entry.name) == ("xavier", "post") else 1.0, init=("xavier", "torch")
    )
    assert said(race, "headline")[-1] == (
        "Pre-LN and Post-LN differ with Xavier weights, and no difference is shown with PyTorch's default weights: the "
        "initial weights decide."
    )
    same = raced(lambda entry: 1.5 if entry.name == "post" else 1.0, init=("xavier", "torch"))
    assert not any("weights decide" in text for text in said(same, "headline"))


def test_one_rule_of_initial_weights_is_cautioned_of() -> None:
    caution = "All of this is with Xavier weights."
    assert any(text.startswith(caution) for text in said(raced(lambda entry: 1.0, "pre"), "caution"))
    both = raced(lambda entry: 1.0, "pre", init=("xavier", "torch"))
    assert not any("All of this is with" in text for text in said(both, "caution"))


def test_contestants_that_do_not_differ_from_the_best_stand_in_one_sentence() -> None:
    losses = {"pre": 1.0, "post": 1.01, "peri": 1.005, "deepnorm": 2.0}
    race = raced(lambda entry: losses[entry.name or ""] + entry.recipe.seed / 10, *losses)
    assert said(race, "difference") == [
        "Pre-LN ends 1.00 [1.00, 1.00] nats below DeepNorm: 1.10 [1.02, 1.18] against 2.10 [2.02, 2.18].",
        "No difference is shown between Pre-LN, 1.10 [1.02, 1.18] nats, and Post-LN (gap 0.010 [0.010, 0.010]) and "
        "Peri-LN (gap 0.0050 [0.0050, 0.0050]).",
    ]


def test_warmup_that_some_seeds_need_is_said_to_be_that() -> None:
    race = raced(lambda entry: 1.0 if entry.recipe.warmup == 0 and entry.recipe.seed == 2 else 0.04, warmup=(0, 10))
    assert said(race, "headline") == ["Pre-LN and Post-LN need warmup with some seeds. No difference is shown."]


def test_who_does_not_learn_is_said_first() -> None:
    race = raced(lambda entry: 2.77 if entry.name == "post" else 0.5)
    (text,) = said(race, "headline")
    assert text.startswith("Post-LN does not learn at any setting tried. At its best setting each, Pre-LN ends below")


def test_who_learns_with_some_seeds_only_is_not_said_to_learn() -> None:
    race = raced(lambda entry: 2.77 if entry.name == "post" and entry.recipe.seed else 0.5)
    assert "Post-LN has no setting at which every run learns." in said(race, "headline")[0]


def test_no_difference_is_shown_where_the_intervals_say_so() -> None:
    """2.29 against 2.28 and 2.15 against 2.16: what looks like a ranking is chance."""
    losses = {"pre": {2: 2.29, 12: 2.15}, "normalised-residual": {2: 2.28, 12: 2.16}}
    race = raced(
        lambda entry: losses[entry.name or ""][entry.spec.layers] + 0.02 * entry.recipe.seed, *losses, depth=(2, 12)
    )
    assert said(race, "headline") == ["No difference is shown at any depth."]


def test_one_seed_does_not_rule_out_chance() -> None:
    race = raced(lambda entry: 2.0 if entry.name == "post" else 1.0, seeds=1)
    assert said(race, "headline") == ["With one seed, Pre-LN ends 1.00 nats below Post-LN; chance is not ruled out."]
    assert any(text.startswith("With one seed there are no intervals") for text in said(race, "caution"))
    assert said(race, "difference")[0].endswith("With one seed, chance is not ruled out.")


@pytest.mark.parametrize(("seeds", "races"), [(2, 2), (3, 4), (4, 8)])
def test_few_seeds_are_said_to_be_few(seeds: int, races: int) -> None:
    text = next(text for text in said(raced(lambda entry: 1.0, seeds=seeds), "caution") if "alone" in text)
    assert f"from {seeds} seeds alone" in text
    assert f"in one race of {races}," in text


def test_many_seeds_are_not_said_to_be_few() -> None:
    assert not any("alone." in text for text in said(raced(lambda entry: 1.0, "pre", seeds=5), "caution"))


def test_stable_rates_are_told_where_they_differ() -> None:
    race = raced(lambda entry: 2.77 if entry.name == "post" and entry.recipe.lr > 1e-3 else 1.0, lr=(1e-3, 1e-2))
    assert said(race, "stability") == [
        "At some warmup every run learns with Pre-LN up to rate 0.01, Post-LN up to rate 0.001."
    ]
    assert said(raced(lambda entry: 1.0, lr=(1e-3, 1e-2)), "stability") == []


def test_a_best_value_on_the_edge_is_cautioned_of() -> None:
    race = raced(lambda entry: 1.0 + entry.recipe.lr, "pre", lr=(1e-3, 1e-2))
    assert "Pre-LN is best at the lowest rate tried (0.001): a better one may lie beyond." in said(race, "caution")


def test_runs_that_failed_are_shown_with_their_reason() -> None:
    grid = grid_of()
    trials = [
        failure(entry, "MemoryError: 3 GiB\nin a process of its own")
        if entry.name == "post" and entry.recipe.seed == 1
        else run_of(entry, 1.0)
        for entry in grid.entries
    ]
    assert "1 run of Post-LN failed and counts as nothing: MemoryError: 3 GiB." in said(
        answered(grid, trials), "caution"
    )


def test_a_contestant_none_of_whose_runs_could_be_made_is_said_to_be_that() -> None:
    grid = grid_of()
    trials = [failure(entry, "no") if entry.name == "post" else run_of(entry, 1.0) for entry in grid.entries]
    assert said(answered(grid, trials), "headline") == ["Post-LN could not be run; see why below."]


def test_a_shortened_comparison_says_at_which_update() -> None:
    grid = grid_of()
    trials = [
        replace(run_of(entry, 1.0, steps=12), outcome="dropped", note="stopped after 5 seconds")
        if entry.name == "post"
        else run_of(entry, 1.0)
        for entry in grid.entries
    ]
    assert (
        "3 runs of Post-LN stopped before the end; all are compared by their training loss at update 12 of 20, the "
        "last that every run has made."
    ) in said(answered(grid, trials), "caution")


def test_runs_dropped_by_halving_are_counted() -> None:
    grid = grid_of("pre", lr=(1e-3, 1e-2))
    trials = [
        replace(run_of(entry, 1.0, steps=5), outcome="dropped", note="halving: after 5 steps its setting came 2 of 2")
        if entry.recipe.lr == 1e-2
        else run_of(entry, 1.0)
        for entry in grid.entries
    ]
    assert any(
        text.startswith("3 runs were stopped early by successive halving")
        for text in said(answered(grid, trials), "caution")
    )


def test_an_unfinished_race_says_so_first() -> None:
    grid = grid_of()
    race = answered(grid, [run_of(entry, 1.0) for entry in grid.entries[:4]], note="interrupted")
    assert race.verdict[0].text == ("Not whole: 4 of 6 runs are there (interrupted); what follows is from these alone.")


def test_a_race_without_runs_has_no_headline() -> None:
    race = answered(grid_of(), [])
    assert said(race, "headline") == []
    assert race.verdict[0].text.startswith("Not whole: 0 of 6 runs")


def test_runs_that_all_diverged_are_an_outcome() -> None:
    race = raced(lambda entry: math.nan if entry.name == "post" else 1.0)
    assert said(race, "headline")[0].startswith("Post-LN does not learn at any setting tried.")
    assert any("Post-LN: 3 diverged of 3" in text for text in said(race, "outcome"))


def test_a_rate_of_its_own_is_cautioned_of() -> None:
    race = raced(lambda entry: 1.0, "pre", "post, lr=1e-2", allow_unequal=True)
    assert any(text.startswith("Post-LN (lr=1e-2): a learning rate of its own") for text in said(race, "caution"))


def test_nonstandard_pairs_are_marked_by_structure() -> None:
    race = raced(lambda entry: 1.0, "pre", "post", "norm(x + f(x)), final=norm(x)", "x + f(norm(x)), final=x")
    assert list(race.nonstandard) == ["norm(x + f(x)), final=norm(x)", "x + f(norm(x)), final=x"]
    marked = [text for text in said(race, "caution") if "nonstandard pair" in text]
    assert "a leftover of the other order" in marked[0]
    assert "no closing norm follows" in marked[1]


def test_of_the_catalogue_only_the_one_without_its_final_norm_is_nonstandard() -> None:
    assert [one.name for one in placements() if nonstandard(one)] == ["pre-no-final"]


@pytest.mark.negative
@pytest.mark.parametrize("final", ["x", "norm(x)", "rmsnorm(x)"])
def test_a_stack_without_norms_has_nothing_to_close(final: str) -> None:
    assert not nonstandard(replace(placement("rezero"), final=Formula(final)))
