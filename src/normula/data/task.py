"""Here live the tasks: what a small model is trained on, the same batches for every contestant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from normula.data.text import VOCABULARY, Corpus, corpus
from normula.formula.errors import nearest

Ids = NDArray[np.int64]

VALIDATION = 64
"""Sequences in the validation batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Ids that go in and ids that should come out, each (B, T)."""

    inputs: Ids
    targets: Ids


@runtime_checkable
class Task(Protocol):
    """A stream of batches that depends on a seed alone.

    Attributes:
        name: `text`, `copy`.
        vocab: V.
        context: T.
        causal: whether the model may look ahead.
    """

    @property
    def name(self) -> str: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def stuck_loss(self) -> float:
        """Loss in nats of a model that has learnt how often each symbol comes and no more."""
        ...

    @property
    def digest(self) -> str:
        """Changes when the data change."""
        ...

    def batches(self, seed: int, size: int) -> Iterator[Batch]:
        """Training batches without end."""
        ...

    def validation(self, size: int = VALIDATION) -> Batch:
        """One fixed batch that is never trained on."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Bytes of a text: each token is to foretell the next."""

    corpus: Corpus
    context: int = 32
    name: str = field(default="text", init=False)
    vocab: int = field(default=VOCABULARY, init=False)
    causal: bool = field(default=True, init=False)

    @property
    def stuck_loss(self) -> float:
        return self.corpus.unigram_loss(self.validation().targets)

    @property
    def digest(self) -> str:
        return self.corpus.digest

    def batches(self, seed: int, size: int) -> Iterator[Batch]:
        random = np.random.default_rng([seed, 1])
        while True:
            yield self._windows(self.corpus.train, random, size)

    def validation(self, size: int = VALIDATION) -> Batch:
        return self._windows(self.corpus.validation, np.random.default_rng([0, 2]), size)

    def _windows(self, data: NDArray[np.uint8], random: np.random.Generator, size: int) -> Batch:
        starts = random.integers(0, len(data) - self.context, size=size)
        rows = data[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)
        return Batch(rows[:, :-1], rows[:, 1:])


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Random symbols: each position is to give back its own."""

    symbols: int = 16
    context: int = 8
    name: str = field(default="copy", init=False)
    causal: bool = field(default=False, init=False)

    @property
    def vocab(self) -> int:
        return self.symbols

    @property
    def stuck_loss(self) -> float:
        return math.log(self.symbols)

    @property
    def digest(self) -> str:
        return f"copy-{self.symbols}-{self.context}"

    def batches(self, seed: int, size: int) -> Iterator[Batch]:
        random = np.random.default_rng([seed, 1])
        while True:
            ids = random.integers(0, self.symbols, size=(size, self.context))
            yield Batch(ids, ids)

    def validation(self, size: int = VALIDATION) -> Batch:
        ids = np.random.default_rng([0, 2]).integers(0, self.symbols, size=(size, self.context))
        return Batch(ids, ids)


def task(name: str = "text", path: str | None = None, context: int | None = None) -> Task:
    """A task by name; `path` is the user's text, `context` the tokens that a model sees at once.

    Raises:
        ValueError: an unknown name, a path where none is read, or a text that cannot be used.
    """
    if name == "text":
        window = 32 if context is None else context
        return Text(corpus(path, window), window)
    if name != "copy":
        raise ValueError(f"a task is text or copy, not {name!r}{nearest(name, ('text', 'copy'))}")
    if path is not None:
        raise ValueError("the copy task makes its own data; give a file with the task text")
    return Copy() if context is None else Copy(context=context)
