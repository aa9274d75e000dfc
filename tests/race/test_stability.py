"""Sensitivity, stable rates and the warmup needed, against closed forms."""

import math

import numpy as np
import pytest

from normula.race import Entry
from normula.race.stability import sensitivity, stable_rate, warmup_needed
from normula.record import Standing
from tests.race.answers import START, raced


def standing(rows: tuple[Standing, ...], name: str) -> Standing:
    return next(row for row in rows if row.name == name)


def test_sensitivity_is_the_mean_above_the_best() -> None:
    """Losses 1, 2, 6 over three rates: their mean is 3, the best 1."""
    found = sensitivity(np.array([[1.0], [2.0], [6.0]]))
    assert found.value == pytest.approx(2.0)
    assert math.isnan(found.low)


def test_sensitivity_of_one_rate_is_not_known() -> None:
    assert math.isnan(sensitivity(np.array([[1.0, 2.0]])).value)


def test_a_quadratic_in_the_logarithm_has_its_closed_form() -> None:
    """Losses c (i - 2)**2 over five rates: mean 2 c, best 0."""
    losses = np.array([[0.3 * (i - 2) ** 2] * 3 for i in range(5)])
    found = sensitivity(losses)
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.6, 0.6))


def test_the_best_rate_is_chosen_anew_in_each_resample() -> None:
    """Seeds (0, 1) and (1, 0) over two rates: 1/2 - 0 in a resample of one seed alone, 1/2 - 1/2 in a mixed one."""
    found = sensitivity(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert found.value == 0.0
    assert found.high == pytest.approx(0.5)


def test_sensitivity_of_a_race_counts_a_run_that_diverged_with_its_first_loss() -> None:
    losses = {1e-4: 2.0, 1e-3: 1.0, 1e-2: math.nan}
    race = raced(lambda entry: losses[entry.recipe.lr], "pre", lr=tuple(losses))
    found = race.standings[0].sensitivity
    assert found.value == pytest.approx((2.0 + 1.0 + START) / 3 - 1.0)
    assert race.cells[2].outcomes == {"diverged": 3}
    assert race.cells[2].loss.value == pytest.approx(START)


def test_the_largest_stable_rate_is_one_at_which_every_run_learned() -> None:
    learned = np.array([[[True, True]], [[True, True]], [[True, False]], [[False, False]]])
    found = stable_rate([1e-4, 1e-3, 1e-2, 1e-1], learned)
    assert found.value == 1e-3
    assert (found.low, found.high) == (1e-3, 1e-2)  # with the first seed alone, one more is stable


def test_a_rate_is_stable_where_some_warmup_makes_it_so() -> None:
    learned = np.array([[[True], [True]], [[False], [True]], [[False], [False]]])
    assert stable_rate([1e-3, 1e-2, 1e-1], learned).value == 1e-2


def test_no_stable_rate_is_zero() -> None:
    assert stable_rate([1e-3], np.array([[[False, True]]])).value == 0.0


@pytest.mark.parametrize(
    ("without", "needed"),
    [(0.5, 0.0), (0.51, 0.0), (0.59, 0.0), (0.7, 75.0), (2.5, 75.0)],
    ids=["as good", "hardly worse", "within the margin", "worse", "much worse"],
)
def test_a_warmup_is_needed_where_the_loss_is_far_from_the_best_without(without: float, needed: float) -> None:
    found = warmup_needed([0, 75], np.array([[[without], [0.5]]]), np.array([[[True], [True]]]))
    assert found.value == needed


def test_a_small_loss_is_far_from_a_smaller_one() -> None:
    """0.13 nats against 0.04, on a task that can be solved; 0.03 against 0.011 is no difference."""
    learned = np.array([[[True], [True]]])
    assert warmup_needed([0, 75], np.array([[[0.13], [0.04]]]), learned).value == 75
    assert warmup_needed([0, 75], np.array([[[0.03], [0.011]]]), learned).value == 0


def test_each_warmup_may_have_a_rate_of_its_own() -> None:
    losses = np.array([[[0.5], [0.9]], [[2.5], [0.45]]])  # without warmup the small rate, with it the large one
    assert warmup_needed([0, 75], losses, np.ones((2, 2, 1), dtype=bool)).value == 0


def test_a_warmup_with_which_not_every_run_learns_is_not_enough() -> None:
    losses = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    assert warmup_needed([0, 75], losses, np.array([[[True, False], [True, True]]])).value == 75
    nothing = warmup_needed([0, 75], losses, np.zeros((1, 2, 2), dtype=bool))
    assert nothing.value == math.inf


def test_one_warmup_says_nothing() -> None:
    assert math.isnan(warmup_needed([0], np.array([[[0.5]]]), np.array([[[True]]])).value)


def test_the_interval_says_whether_the_seeds_agree() -> None:
    """One seed of three needs the warmup: without it no resample does, and the interval spans both."""

    def loss(entry: Entry) -> float:
        return 1.0 if entry.recipe.warmup == 0 and entry.recipe.seed == 2 else 0.04

    found = raced(loss, "pre", warmup=(0, 10)).standings[0].warmup_needed
    assert (found.value, found.low, found.high) == (10.0, 0.0, 10.0)
