"""The tasks that are made by a rule, each against another evaluation of the rule, example by example."""

import re
import statistics
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normula.data import Batch, Copy, Digits, ListOps, Recall, Repeat, Task, Translate
from normula.data.tasks.digits import patches
from normula.data.tasks.listops import PADDING as NOTHING
from normula.data.tasks.listops import WORDS
from normula.data.tasks.translate import END, PADDING, RULES, START

pytestmark = pytest.mark.property

SEEDS = st.integers(0, 2**32)
quickly = settings(max_examples=25, deadline=None)


def examples(data: Task, seed: int, size: int = 16) -> Iterator[Batch]:
    """Some of training and validation, one by one."""
    for batch in (next(iter(data.batches(seed, size))), data.validation(size)):
        for place in range(size):
            yield batch.taken(place)


def test_in_the_copy_task_each_position_gives_back_its_own() -> None:
    data = Copy(symbols=5, context=7)
    batch = next(data.batches(0, 100))
    np.testing.assert_array_equal(batch.inputs, batch.targets)
    assert set(batch.inputs.flat) == set(range(5))
    assert (data.vocab, data.context, data.causal) == (5, 7, False)


@quickly
@given(seed=SEEDS, symbols=st.integers(2, 30), half=st.integers(3, 20))
def test_what_is_repeated_came_before_a_separator(seed: int, symbols: int, half: int) -> None:
    for one in examples(Repeat(symbols=symbols, context=2 * half), seed):
        once, again = one.inputs[:half].tolist(), one.inputs[half + 1 :].tolist()
        assert one.inputs[half] == symbols
        assert set(once) <= set(range(symbols))
        assert again == once[:-1]
        assert one.targets.tolist() == [-1] * half + once


@quickly
@given(seed=SEEDS, keys=st.integers(2, 9), values=st.integers(2, 9), more=st.integers(1, 6))
def test_a_key_that_came_before_has_the_value_that_it_had(seed: int, keys: int, values: int, more: int) -> None:
    for one in examples(Recall(keys, values, 2 * (keys + more)), seed):
        known: dict[int, int] = {}
        for key, value, target, nothing in zip(
            one.inputs[::2], one.inputs[1::2], one.targets[::2], one.targets[1::2], strict=True
        ):
            assert 0 <= key < keys <= value < keys + values
            assert (target, nothing) == (known.get(int(key), -1), -1)
            assert known.setdefault(int(key), int(value)) == value
        assert (one.targets >= 0).any()


TRANSLATED: dict[str, Any] = {"reverse": reversed, "sort": sorted, "copy": list}


@quickly
@given(seed=SEEDS, symbols=st.integers(2, 30), context=st.integers(5, 14))
def test_a_translation_is_what_its_first_word_says(seed: int, symbols: int, context: int) -> None:
    data = Translate(symbols=symbols, context=context)
    for one in examples(data, seed):
        length = check_translation(data, one)
        assert length in data.lengths
        assert length != data.held_length
    for place in range(16):
        assert check_translation(data, data.held_out(16).taken(place)) == data.held_length


def check_translation(data: Translate, one: Batch) -> int:
    """Compare with Python's own reversed, sorted and list; gives the length."""
    assert one.source is not None
    rule, *symbols = (int(i) for i in one.source if i != PADDING)
    assert list(one.source) == [rule, *symbols] + [PADDING] * (data.context - 1 - len(symbols))
    assert one.source_mask is not None
    assert list(one.source_mask) == [True] * (1 + len(symbols)) + [False] * (data.context - 1 - len(symbols))
    assert set(symbols) <= set(range(data.first_symbol, data.vocab))
    answer = list(TRANSLATED[list(RULES)[rule - END - 1]](symbols))
    rest = data.context - 1 - len(answer)
    assert one.inputs.tolist() == [START, *answer] + [PADDING] * rest
    assert one.targets.tolist() == [*answer, END] + [-1] * rest
    return len(answer)


def test_every_rule_and_every_length_but_one_is_trained_on() -> None:
    data = Translate()
    batches = [batch for batch in islice(data.batches(0, 64), 4) if batch.source is not None]
    lengths = {int(n) for batch in batches for n in (batch.targets >= 0).sum(axis=1) - 1}
    assert lengths == {4, 5, 7, 8}
    assert data.held_length == 6
    assert {int(batch.source[i, 0]) for batch in batches if batch.source is not None for i in range(64)} == {3, 4, 5}


def median(*values: int) -> int:
    return int(statistics.median(values) // 1)


def total(*values: int) -> int:
    return sum(values) % 10


NAMES = {"MIN": min, "MAX": max, "MED": median, "SM": total}


@quickly
@given(seed=SEEDS, depth=st.integers(1, 4), arguments=st.integers(2, 4), context=st.integers(8, 40))
def test_each_bracket_has_the_value_that_python_finds(seed: int, depth: int, arguments: int, context: int) -> None:
    for one in examples(ListOps(context=context, depth=depth, arguments=arguments), seed, size=4):
        words = [WORDS[i] for i in one.inputs if i != NOTHING]
        assert [WORDS[i] for i in one.inputs] == words + [""] * (context - len(words))
        opened, expected = [], [-1] * context
        for place, word in enumerate(words):
            if word.startswith("["):
                opened.append(place)
            if word == "]":
                expected[place] = evaluated(words[opened.pop() : place + 1])
        assert one.targets.tolist() == expected, " ".join(words)
        assert deepest(words) <= depth
        assert all(2 <= count <= arguments for count in argument_counts(words)), " ".join(words)


def evaluated(words: list[str]) -> int:
    """By Python: [MAX 2 [SM 1 2 ] ] is MAX(2, SM(1, 2))."""
    called = re.sub(r"\[(\w+)", r"\1(", " ".join(words)).replace(" ]", ")").replace("( ", "(").replace(" ", ", ")
    return int(eval(called, {"__builtins__": {}}, NAMES))


def deepest(words: list[str]) -> int:
    depths = np.cumsum([word.startswith("[") - (word == "]") for word in words])
    assert depths[-1] == 0
    return int(depths.max())


def argument_counts(words: list[str]) -> list[int]:
    """Of each operation, by a stack."""
    counts, stack = [], [0]
    for word in words:
        if word == "]":
            counts.append(stack.pop())
            continue
        stack[-1] += 1
        if word.startswith("["):
            stack.append(0)
    assert stack == [1]
    return counts


def test_expressions_reach_their_depth_and_every_operation_and_digit_comes() -> None:
    batch = ListOps().validation(256)
    texts = [[WORDS[i] for i in row if i != NOTHING] for row in batch.inputs]
    assert {deepest(words) for words in texts} == {1, 2, 3}
    assert {word for words in texts for word in words} == set(WORDS) - {""}
    assert set(batch.targets.flat) == set(range(-1, 10))


def test_what_stands_at_the_outer_level_alone_does_not_say_the_value() -> None:
    """Of many expressions the value is no digit that stands at the outer level."""
    batch = ListOps().validation(256)
    needs = 0
    for row, targets in zip(batch.inputs, batch.targets, strict=True):
        level, own = 0, set()
        for word in (WORDS[i] for i in row if i != NOTHING):
            level += word.startswith("[") - (word == "]")
            own |= {int(word)} if word.isdigit() and level == 1 else set()
        needs += int(targets[targets >= 0][-1]) not in own
    assert needs > 100


class TestDigits:
    def test_patches_are_the_squares_of_an_image(self) -> None:
        image = np.arange(64.0).reshape(1, 8, 8)
        found = patches(image.reshape(1, 64))
        for place in range(16):
            top, left = 2 * (place // 4), 2 * (place % 4)
            np.testing.assert_array_equal(found[0, place], image[0, top : top + 2, left : left + 2].ravel())

    def test_every_image_is_in_one_part_or_the_other(self) -> None:
        datasets = pytest.importorskip("sklearn.datasets")
        labels = datasets.load_digits().target
        data = Digits()
        held = {(row.tobytes(), int(label)) for row, label in zip(*arrays_of(data.validation()), strict=True)}
        seen = {
            (row.tobytes(), int(label))
            for batch in islice(data.batches(0, 256), 60)
            for row, label in zip(*arrays_of(batch), strict=True)
        }
        assert not held & seen
        assert (len(held), len(held | seen)) == (360, 1797)
        assert sorted(label for _, label in held | seen) == sorted(labels)

    def test_values_have_mean_0_and_deviation_1_where_they_are_trained_on(self) -> None:
        pytest.importorskip("sklearn")
        values = np.concatenate([batch.inputs.ravel() for batch in islice(Digits().batches(0, 256), 40)])
        assert abs(values.mean()) < 0.02
        assert abs(values.std() - 1) < 0.02

    @pytest.mark.negative
    def test_more_images_than_there_are(self) -> None:
        pytest.importorskip("sklearn")
        with pytest.raises(ValueError, match="digits has 360 images for validation, not 361"):
            Digits().validation(361)

    @pytest.mark.negative
    def test_without_scikit_learn_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from normula.data.tasks import digits

        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        digits._images.cache_clear()
        with pytest.raises(ValueError, match=r"come with scikit-learn; install it with: pip install 'normula\[race\]'"):
            Digits().validation()
        digits._images.cache_clear()


def arrays_of(batch: Batch) -> tuple[Any, Any]:
    return batch.inputs, batch.targets
