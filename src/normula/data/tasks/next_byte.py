"""Here lives Text: each byte of a text is to foretell the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normula.data.base import VALIDATION, Specified
from normula.data.batch import Batch
from normula.data.text import VOCABULARY, Corpus


@dataclass(frozen=True, slots=True, eq=False)
class Text(Specified):
    """Bytes of a text: each token is to foretell the next."""

    corpus: Corpus
    context: int = 32
    name: str = "text"
    vocab: int | None = VOCABULARY
    causal: bool = True

    @property
    def stuck_loss(self) -> float:
        return self.corpus.unigram_loss(self.validation().targets)

    @property
    def digest(self) -> str:
        return self.corpus.digest

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        random = np.random.default_rng([seed, 1])
        for _ in range(first):
            self._starts(self.corpus.train, random, size)
        while True:
            yield self._windows(self.corpus.train, random, size)

    def validation(self, size: int = VALIDATION) -> Batch:
        return self._windows(self.corpus.validation, np.random.default_rng([0, 2]), size)

    def _starts(self, data: NDArray[np.uint8], random: np.random.Generator, size: int) -> NDArray[np.int64]:
        return random.integers(0, len(data) - self.context, size=size)

    def _windows(self, data: NDArray[np.uint8], random: np.random.Generator, size: int) -> Batch:
        starts = self._starts(data, random, size)
        rows = data[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)
        return Batch(rows[:, :-1], rows[:, 1:])
