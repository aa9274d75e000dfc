"""Here lives Recall: keys and their values go by; a key that was seen is to give its value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from normula.data.base import Drawn
from normula.data.batch import NOT_SCORED, Batch


@dataclass(frozen=True, slots=True, eq=False)
class Recall(Drawn):
    """Pairs of a key and its value, in another random dictionary each time: key value key value ...

    At a key that came before, its value is to be foretold; nothing else is scored. It takes a layer that looks back by
    one and one that looks for the same key: Olsson et al., In-context Learning and Induction Heads, 2022. As a measure
    of architectures: Arora et al., Zoology, 2024, section 3.

    Args:
        keys, values: how many there are.
        context: T, twice the number of pairs, of which there are more than keys.
    """

    keys: int = 8
    values: int = 8
    context: int = 32
    name: str = field(default="recall", init=False)
    causal: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.context % 2 or self.context <= 2 * self.keys:
            raise ValueError(
                f"recall shows pairs, and more of them than there are keys ({self.keys}), so that one comes again: its "
                f"context is an even number above {2 * self.keys}, not {self.context}"
            )

    @property
    def vocab(self) -> int:  # type: ignore[override]
        return self.keys + self.values

    @property
    def stuck_loss(self) -> float:
        return math.log(self.values)

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        dictionaries = random.integers(0, self.values, (size, self.keys))
        keys = random.integers(0, self.keys, (size, self.context // 2))
        values = self.keys + np.take_along_axis(dictionaries, keys, axis=1)
        inputs = np.stack([keys, values], axis=2).reshape(size, self.context)
        targets = np.full_like(inputs, NOT_SCORED)
        targets[:, ::2] = np.where(_came_before(keys), values, NOT_SCORED)
        return Batch(inputs, targets)


def _came_before(ids: np.ndarray) -> np.ndarray:
    """Whether each id stands further left in its row too."""
    same = ids[:, :, None] == ids[:, None, :]
    before: np.ndarray = (same & np.tri(ids.shape[1], k=-1, dtype=bool)).any(axis=2)
    return before
