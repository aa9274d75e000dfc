"""Batches taken apart and put together, the split of examples, the loss of a guess."""

import math

import numpy as np
import pytest

from normula.data import Batch
from normula.data.batch import drawn, is_held, joined, unigram_loss

BATCH = Batch(
    np.arange(12).reshape(4, 3), np.arange(4), source=np.arange(8).reshape(4, 2), source_mask=np.ones((4, 2), bool)
)


def test_examples_taken_apart_and_joined_are_the_batch() -> None:
    again = joined([BATCH.taken(slice(0, 1)), BATCH.taken(np.array([False, True, True, True]))])
    assert again.size == BATCH.size == 4
    for name, array in BATCH.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)


def test_a_model_is_called_with_what_there_is_and_without_the_targets() -> None:
    assert list(BATCH.arguments) == ["inputs", "source", "source_mask"]
    assert list(Batch(BATCH.inputs, BATCH.targets).arguments) == ["inputs"]


def test_one_row_in_sixteen_is_held_whatever_stands_around_it() -> None:
    ids = np.random.default_rng(0).integers(0, 20, (20_000, 7))
    held = is_held(ids)
    assert abs(held.mean() - 1 / 16) < 4 * math.sqrt(1 / 16 * 15 / 16 / 20_000)
    order = np.random.default_rng(1).permutation(20_000)
    np.testing.assert_array_equal(is_held(ids[order]), held[order])


@pytest.mark.parametrize("place", range(7))
def test_no_place_of_a_row_says_whether_it_is_held(place: int) -> None:
    """Symbols are as frequent in one part as in the other: a model cannot gain from the split."""
    ids = np.random.default_rng(2).integers(0, 4, (80_000, 7))
    held = is_held(ids)
    for symbol in range(4):
        share = (ids[held, place] == symbol).mean()
        assert abs(share - 1 / 4) < 5 * math.sqrt(1 / 4 * 3 / 4 / held.sum())


@pytest.mark.parametrize("held", [True, False])
def test_examples_of_one_part(held: bool) -> None:
    random = np.random.default_rng(3)

    def sample(size: int) -> Batch:
        ids = random.integers(0, 9, (size // 2, 5))  # fewer than asked for
        return Batch(ids, ids)

    found = drawn(sample, lambda batch: batch.inputs, 50, held=held)
    assert found.size == 50
    assert (is_held(found.inputs) == held).all()
    np.testing.assert_array_equal(found.inputs, found.targets)


def test_the_loss_of_a_guess_counts_what_is_scored_and_each_symbol_once_more() -> None:
    seen, targets = np.array([[0, 0, 1], [-1, 0, -1]]), np.array([0, -1, 2])
    assert unigram_loss(seen, targets, 3) == pytest.approx(-(math.log(4 / 7) + math.log(1 / 7)) / 2)
