"""What the tasks have in common: the spec of a model for them, and batches that are drawn by number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from normula.data.batch import Batch, Ids, drawn, unigram_loss
from normula.spec import Spec

VALIDATION = 64
"""Sequences in the validation batch."""

BLOCK = 16
"""Batches that are drawn at once: what a call of NumPy costs is shared, and a run goes on at any batch."""

FIELDS = ("vocab", "features", "classes", "context", "causal")
"""What of a spec comes from the task."""


class Specified:
    """A task that knows what a model for it takes and gives: T tokens of V ids or of P values, and what is scored."""

    __slots__ = ()

    name: str
    vocab: int | None
    context: int
    causal: bool

    @property
    def features(self) -> int | None:
        """P, values of a token that is no id."""
        return None

    @property
    def classes(self) -> int | None:
        """Classes of the whole sequence, where it is that which is scored."""
        return None

    def spec(self, **fields: Any) -> Spec:
        """The spec of a model for the task.

            >>> from normula.data import Copy
            >>> Copy().spec(placement="pre", layers=2).vocab
            16

        Args:
            fields: of the spec: placement, layers, width, heads, norm, init, seed ...

        Raises:
            ValueError: a field that comes from the task, or one that cannot be.
        """
        self._check(fields, FIELDS)
        return Spec(**{name: getattr(self, name) for name in FIELDS}, **fields)

    def _check(self, given: dict[str, Any], own: tuple[str, ...]) -> None:
        if taken := [name for name in own if name in given]:
            raise ValueError(f"{', '.join(taken)} of a model comes from the task {self.name}; leave it out")


class Drawn(Specified):
    """A task without end, made by a rule: one example in 16 is for validation, by what it is."""

    __slots__ = ()

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        """Random examples, at most `size`, of both parts."""
        raise NotImplementedError

    def key(self, batch: Batch) -> Ids:
        """What tells each example from others, (B, T)."""
        ids: Ids = batch.inputs
        return ids

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        """Training batches without end, from number `first` on."""
        start, skipped = divmod(first, BLOCK)
        for block in count(start):
            several = self._drawn(np.random.default_rng([seed, 1, block]), BLOCK * size, held=False)
            for place in range(skipped if block == start else 0, BLOCK):
                yield several.taken(slice(place * size, (place + 1) * size))

    def validation(self, size: int = 4 * VALIDATION) -> Batch:
        """One fixed batch that is never trained on."""
        return self._drawn(np.random.default_rng([0, 2]), size, held=True)

    @property
    def stuck_loss(self) -> float:
        """Loss in nats of a model that has learnt how often each symbol comes and no more."""
        seen = self._drawn(np.random.default_rng([0, 4]), 2048, held=False).targets
        out = self.classes or self.vocab
        assert out is not None
        return unigram_loss(seen, self.validation().targets, out)

    @property
    def digest(self) -> str:
        """Changes with the rule, its numbers, and what the generator draws."""
        found = hashlib.sha256(repr(self).encode())
        for batch in (next(iter(self.batches(0, 8))), self.validation(8)):
            for array in batch.arrays.values():
                found.update(array.tobytes())
        return f"{self.name}-{found.hexdigest()[:16]}"

    def _drawn(self, random: np.random.Generator, size: int, *, held: bool) -> Batch:
        return drawn(lambda count: self.sample(random, count), self.key, size, held=held)
