"""Here lives ListOps: nested operations on digits, whose values are to be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from normula.data.base import Drawn
from normula.data.batch import NOT_SCORED, Batch, Ids

DIGITS = 10

Operation = Callable[[Ids, Ids], Ids]

OPERATIONS: Mapping[str, Operation] = {
    "MIN": lambda values, count: values[:, 0],
    "MAX": lambda values, count: _at(values, count - 1),
    "MED": lambda values, count: (_at(values, (count - 1) // 2) + _at(values, count // 2)) // 2,
    "SM": lambda values, count: np.where(np.arange(values.shape[1]) < count[:, None], values, 0).sum(axis=1) % DIGITS,
}
"""The paper's names; from sorted values (B, A), of which the first `count` (B,) are arguments, to one digit each."""

CLOSE = DIGITS + len(OPERATIONS)
PADDING = CLOSE + 1
WORDS = (*map(str, range(DIGITS)), *(f"[{name}" for name in OPERATIONS), "]", "")
"""What the ids stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class ListOps(Drawn):
    """Expressions such as [MAX 2 9 [MIN 4 7 ] 0 ]: at each closing bracket, the value of what it closes.

    What stands inside must be known before what stands outside, one level after another: a stack with few layers does
    not get to the outer ones. MED is the median, rounded down; SM the sum modulo 10.

    After Nangia and Bowman, ListOps: A Diagnostic Dataset for Latent Tree Learning, 2018; as a task for transformers:
    Tay et al., Long Range Arena, 2021, section 2.1.1. Differs: every bracket is scored and not the last alone, and
    expressions are short, so that a model on a laptop learns it in minutes.

    Args:
        context: T, the longest expression, brackets included; shorter ones are padded.
        depth: how deep operations may stand in each other.
        arguments: the most that an operation has; the least are two.
    """

    context: int = 24
    depth: int = 3
    arguments: int = 3
    name: str = field(default="listops", init=False)
    vocab: int | None = field(default=len(WORDS), init=False)
    causal: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.context < 4:
            raise ValueError(
                "the shortest expression, an operation on two digits, has 4 tokens: the context of listops is at least "
                f"4, not {self.context}"
            )

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        """Expressions of at most T tokens; longer ones are left out."""
        whole = _operations(random, size, self.depth, self.arguments)
        order = np.argsort(whole.ids == PADDING, axis=1, kind="stable")  # the padding to the end
        fits = np.flatnonzero((whole.ids != PADDING).sum(axis=1) <= self.context)
        ids, values = (np.take_along_axis(array[fits], order[fits], axis=1) for array in (whole.ids, whole.values))
        room = ((0, 0), (0, max(0, self.context - ids.shape[1])))
        return Batch(
            np.pad(ids, room, constant_values=PADDING)[:, : self.context],
            np.pad(values, room, constant_values=NOT_SCORED)[:, : self.context],
        )


class _Expressions(NamedTuple):
    """Expressions with padding between their tokens.

    Attributes:
        ids, values: (B, N), the tokens, and at closing brackets the value of what they close.
        answers: (B,), the value of all of it.
    """

    ids: Ids
    values: Ids
    answers: Ids


def _operations(random: np.random.Generator, size: int, depth: int, arguments: int) -> _Expressions:
    """Operations on two or more arguments."""
    inner = _arguments(random, size * arguments, depth - 1, arguments)
    ids, values = (array.reshape(size, arguments, -1) for array in (inner.ids, inner.values))
    counts = random.integers(2, arguments + 1, size)
    missing = np.arange(arguments) >= counts[:, None]
    ids = np.where(missing[:, :, None], PADDING, ids)
    values = np.where(missing[:, :, None], NOT_SCORED, values)
    # in order, and what is missing last
    given = np.sort(np.where(missing, DIGITS, inner.answers.reshape(size, arguments)), axis=1)
    chosen = random.integers(0, len(OPERATIONS), size)
    answers = np.choose(chosen, [operation(given, counts) for operation in OPERATIONS.values()])
    nothing, close = np.full((size, 1), NOT_SCORED), np.full((size, 1), CLOSE)
    return _Expressions(
        np.concatenate([DIGITS + chosen[:, None], ids.reshape(size, -1), close], axis=1),
        np.concatenate([nothing, values.reshape(size, -1), answers[:, None]], axis=1),
        answers,
    )


def _arguments(random: np.random.Generator, size: int, depth: int, arguments: int) -> _Expressions:
    """Digits and, where some depth is left, as many operations."""
    digits = random.integers(0, DIGITS, size)
    if depth == 0:
        return _Expressions(digits[:, None], np.full((size, 1), NOT_SCORED), digits)
    found = _operations(random, size, depth, arguments)
    is_digit = random.random(size) < 0.5
    found.ids[is_digit], found.values[is_digit] = PADDING, NOT_SCORED
    found.ids[is_digit, 0] = digits[is_digit]
    return found._replace(answers=np.where(is_digit, digits, found.answers))


def _at(values: Ids, places: Ids) -> Ids:
    """One value of each row."""
    return values[np.arange(len(values)), places]
