"""Here live Copy and Repeat: random symbols that are to be given back, in place or once more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from normula.data.base import VALIDATION, Drawn, Specified
from normula.data.batch import NOT_SCORED, Batch, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Copy(Specified):
    """Random symbols: each position is to give back its own."""

    symbols: int = 16
    context: int = 8
    name: str = field(default="copy", init=False)
    causal: bool = field(default=False, init=False)

    @property
    def vocab(self) -> int:  # type: ignore[override]
        return self.symbols

    @property
    def stuck_loss(self) -> float:
        return math.log(self.symbols)

    @property
    def digest(self) -> str:
        return f"copy-{self.symbols}-{self.context}"

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        random = np.random.default_rng([seed, 1])
        for _ in range(first):
            self._ids(random, size)
        while True:
            ids = self._ids(random, size)
            yield Batch(ids, ids)

    def validation(self, size: int = VALIDATION) -> Batch:
        ids = self._ids(np.random.default_rng([0, 2]), size)
        return Batch(ids, ids)

    def _ids(self, random: np.random.Generator, size: int) -> Ids:
        return random.integers(0, self.symbols, size=(size, self.context))


@dataclass(frozen=True, slots=True, eq=False)
class Repeat(Drawn):
    """Random symbols, a separator, the same symbols: the second time each is to be foretold.

    Args:
        symbols: how many there are; the separator is one more.
        context: T, twice the number of symbols in a row: the last one is foretold and never goes in.
    """

    symbols: int = 15
    context: int = 30
    name: str = field(default="repeat", init=False)
    causal: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.context < 2 or self.context % 2:
            raise ValueError(
                f"repeat gives the symbols, a separator and all but the last symbol again: its context is an even "
                f"number, not {self.context}"
            )

    @property
    def vocab(self) -> int:  # type: ignore[override]
        return self.symbols + 1

    @property
    def stuck_loss(self) -> float:
        return math.log(self.symbols)

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        once = random.integers(0, self.symbols, (size, self.context // 2))
        separator = np.full((size, 1), self.symbols)
        inputs = np.concatenate([once, separator, once[:, :-1]], axis=1)
        return Batch(inputs, np.concatenate([np.full_like(once, NOT_SCORED), once], axis=1))
