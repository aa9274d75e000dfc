"""Here lives Batch: what goes into a model and what should come out, and how the examples in it are told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

NOT_SCORED = -1
"""A target that does not count."""

HELD_BITS = 4
"""One example in 2^4 is for validation."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Examples side by side.

    Attributes:
        inputs: ids (B, T), or float32 values (B, T, P).
        targets: ids (B, T), or classes (B,); -1 is not scored.
        source: ids (B, S) of an encoder, or None.
        source_mask: (B, S), true where a token of the source is real; None where all are.
    """

    inputs: NDArray[Any]
    targets: Ids
    source: Ids | None = None
    source_mask: Mask | None = None

    @property
    def size(self) -> int:
        """B."""
        return len(self.targets)

    @property
    def tokens(self) -> int:
        """B * T, and B * S of a source; of what is padded too."""
        return math.prod(self.inputs.shape[:2]) + (0 if self.source is None else self.source.size)

    @property
    def arguments(self) -> dict[str, NDArray[Any]]:
        """What a model is called with, by name: inputs, and source and source_mask where there are any."""
        return {name: array for name, array in self.arrays.items() if name != "targets"}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that there are, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in named.items() if array is not None}

    def taken(self, rows: Any) -> Batch:
        """Some of the examples."""
        return Batch(**{name: array[rows] for name, array in self.arrays.items()})


def joined(batches: Sequence[Batch]) -> Batch:
    """All examples of several batches."""
    if len(batches) == 1:
        return batches[0]
    return Batch(**{name: np.concatenate([batch.arrays[name] for batch in batches]) for name in batches[0].arrays})


def is_held(ids: Ids) -> Mask:
    """Which rows of ids (B, T) are for validation: it depends on the row alone, so no such row is ever trained on.

    The highest bits of a sum of products with random odd numbers, modulo 2^64: Dietzfelbinger, Universal hashing and
    k-wise independent random variables via integer arithmetic without primes, 1996.
    """
    sums = ((ids + 1).astype(np.uint64) * _odd(ids.shape[1])).sum(axis=1)
    held: Mask = sums >> np.uint64(64 - HELD_BITS) == 0
    return held


@cache
def _odd(count: int) -> NDArray[np.uint64]:
    return np.random.default_rng(0x5EED).integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def drawn(sample: Callable[[int], Batch], key: Callable[[Batch], Ids], size: int, *, held: bool) -> Batch:
    """Examples of one part.

    Args:
        sample: some random examples, at most the number that it is given.
        key: the row of ids that tells an example from others.
        size: B.
        held: whether from the part for validation.

    Raises:
        ValueError: the task has too few different examples to hold any out.
    """
    found: list[Batch] = []
    have = rounds = 0
    while have < size:
        if rounds == 1000:
            raise ValueError("the task has too few different examples to hold some out; make it larger")
        batch = sample(size << HELD_BITS if held else size + size // 8 + 4)
        batch = batch.taken(is_held(key(batch)) == held)
        found.append(batch)
        have, rounds = have + batch.size, rounds + 1
    return joined(found).taken(slice(size))


def unigram_loss(seen: NDArray[Any], targets: Ids, symbols: int) -> float:
    """Loss in nats on these targets of the best guess that knows nothing but how often each symbol was seen.

    Args:
        seen: targets that were trained on, of any shape; each symbol counts once more.
        targets: of any shape; those of -1 are not scored, here and there.
        symbols: in all.
    """
    counts = np.bincount(seen[seen >= 0].ravel(), minlength=symbols).astype(np.float64) + 1.0
    return float(-np.log(counts[targets[targets >= 0]] / counts.sum()).mean())
