"""Analysis of variance, against examples worked by hand."""

import math
from itertools import product

import pytest

from normula.race import effects
from normula.record import Share, Trial
from tests.race.trials import trial

REST = ("all else, seeds too",)


def shares(trials: list[Trial]) -> dict[tuple[str, ...], float]:
    found = effects(trials)
    assert list(found) == sorted(found, key=lambda share: -share.share)
    return {share.factors: share.share for share in found}


def test_one_factor_alone_explains_all() -> None:
    """Losses 1, 1, 3, 3: the placement's sum of squares is 4 of 4."""
    trials = [trial(name, {"pre": 1.0, "post": 3.0}[name], lr=lr) for name in ("pre", "post") for lr in (1e-3, 1e-2)]
    assert shares(trials) == pytest.approx(
        {("placement",): 1.0, ("learning rate",): 0.0, ("placement", "learning rate"): 0.0, REST: 0.0}
    )


def test_a_pure_interaction_is_neither_factors() -> None:
    """Losses 1, 3 with one, 3, 1 with the other: both factors' means are 2, and together they explain all."""
    losses = {("pre", "xavier"): 1.0, ("pre", "normal"): 3.0, ("post", "xavier"): 3.0, ("post", "normal"): 1.0}
    trials = [trial(name, loss, init=init) for (name, init), loss in losses.items()]
    found = shares(trials)
    assert found.pop(("placement", "initial weights")) == pytest.approx(1.0)
    assert found == pytest.approx({("placement",): 0.0, ("initial weights",): 0.0, REST: 0.0})


def test_the_seeds_are_the_rest() -> None:
    trials = [trial("pre", loss, seed=seed) for seed, loss in enumerate((1.0, 2.0, 3.0))]
    assert shares(trials) == pytest.approx({REST: 1.0})


def test_a_mixed_example_worked_by_hand() -> None:
    """Losses 1, 2, 3, 6 around a mean of 3: 14 in all, placement (1.5, 4.5) 9, rate (2, 4) 4, together 1 more."""
    trials = [
        trial("pre", 1.0, lr=1e-3),
        trial("pre", 2.0, lr=1e-2),
        trial("post", 3.0, lr=1e-3),
        trial("post", 6.0, lr=1e-2, curve=(7.0,)),
    ]
    assert shares(trials) == pytest.approx(
        {("placement",): 9 / 14, ("learning rate",): 4 / 14, ("placement", "learning rate"): 1 / 14, REST: 0.0}
    )


@pytest.mark.property
def test_shares_add_up_to_one_on_a_full_grid() -> None:
    grid = product(("pre", "post", "peri"), ("xavier", "normal"), (1e-3, 3e-3, 1e-2), (0, 50), (0, 1))
    trials = [
        trial(name, 2.0 + math.sin(7.3 * place), init=init, lr=lr, warmup=warmup, seed=seed)
        for place, (name, init, lr, warmup, seed) in enumerate(grid)
    ]
    found = effects(trials)
    assert sum(share.share for share in found) == pytest.approx(1.0)
    assert all(0 <= share.share <= 1 for share in found)
    assert len(found) == 4 + 6 + 1


@pytest.mark.parametrize(
    ("curve", "value"),
    [((5.0, math.nan), 5.0), ((5.0, 9.0), 5.0), ((math.nan,), 6.0), ((), 6.0)],
    ids=["nan later", "worse than its start", "nan at once", "no curve"],
)
def test_a_run_that_diverged_counts_with_its_first_loss(curve: tuple[float, ...], value: float) -> None:
    """Without one that is a number, as twice the loss of symbol frequencies."""
    diverged = trial("post", math.nan, curve=curve, outcome="diverged", lr=1e-2)
    others = [trial("pre", 1.0), trial("pre", 1.5, lr=1e-2), trial("post", 2.0)]
    same = trial("post", value, curve=(9.0,), lr=1e-2)
    assert effects([*others, diverged]) == effects([*others, same])


@pytest.mark.negative
@pytest.mark.parametrize(
    "trials",
    [
        [],
        [trial("pre"), trial("post"), trial("pre", 1.0, lr=1e-2)],
        [trial("pre"), trial("post", 1.0), trial("post", 1.0, seed=1)],
        [trial("pre"), trial("post")],
        [trial("pre")],
    ],
    ids=["none", "a hole", "unequal seeds", "equal losses", "one run"],
)
def test_nothing_is_said_of_a_grid_with_holes_or_of_equal_losses(trials: list[Trial]) -> None:
    assert effects(trials) == ()


def test_only_what_was_varied_is_named() -> None:
    assert effects([trial("pre", 1.0), trial("post", 2.0)]) == (
        Share(factors=("placement",), share=1.0),
        Share(factors=REST, share=0.0),
    )
