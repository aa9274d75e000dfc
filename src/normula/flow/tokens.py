"""How batch, tokens and features stand in the stream of a model that was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from normula.flow.observed import Observed
from normula.record.program import Program
from normula.record.stream import Stream

Array: TypeAlias = NDArray[Any]

Tokens: TypeAlias = Callable[[Array], Array]
"""From a value of the stream to (B, T, D)."""


class Layouts:
    """How tokens stand in each value of a stream, by its shape; found when it is first asked for."""

    def __init__(self, program: Program, stream: Stream, seen: Observed) -> None:
        self.nodes, self.stream, self.seen = program.nodes, stream, seen
        self._known: dict[tuple[int, ...], Tokens | None] = {}
        if stream.steps:
            first = stream.steps[0]
            self.shape = self.nodes[first.before].shape
            same = self.nodes[first.place].shape == self.shape
            self.first = first.place if same and first.place in seen.edges else first.before
            self._known[self.shape] = self._of_all()

    def of(self, node: int) -> Tokens | None:
        """How the tokens stand in a value of the stream; None where that cannot be told."""
        shape = self.nodes[node].shape
        if shape not in self._known:
            self._known[shape] = self._of_rows(node)
        return self._known[shape]

    def _of_all(self) -> Tokens | None:
        """Sequences do not see each other: what the last row of the last value depends on is its own sequence."""
        axis = self.stream.features
        last = next((step.after for step in self.stream.steps[::-1] if self._has(step.after)), None)
        if axis is None or last is None:
            return None
        gradient = self._seen_by(last, axis, -1)
        if gradient is None:
            return None
        seen = (np.moveaxis(gradient, axis, -1) != 0).any(axis=-1)
        return _by_rows(seen, axis) if seen.ndim == 1 else _by_axes(seen, axis)

    def _has(self, node: int) -> bool:
        return node in self.seen.edges and self.nodes[node].shape == self.shape

    def _of_rows(self, node: int) -> Tokens | None:
        """Rows of all tokens, (B T, D): the last but one is of the last sequence where sequences are not mixed."""
        tokens, shape = self._known[self.shape], self.nodes[node].shape
        if tokens is None or len(shape) != 2 or node not in self.seen.edges:
            return None
        gradient = self._seen_by(node, 1, -2)
        if gradient is None:
            return None
        seen = (tokens(gradient) != 0).any(axis=-1)
        B, T = seen.shape
        if (B * T, tokens(gradient).shape[-1]) != tuple(shape) or min(B, T) < 2:
            return None
        owner = seen.any(axis=-1)
        if owner.sum() != 1:
            return None
        if owner[-1]:
            return lambda x: x.reshape(B, T, -1)
        return (lambda x: x.reshape(T, B, -1).swapaxes(0, 1)) if owner[-2] else None

    def _seen_by(self, node: int, axis: int, row: int) -> Array | None:
        """The gradient of one row of a value with respect to the first value of the stream."""
        if self.first not in self.seen.edges:
            return None
        direction = np.zeros(self.nodes[node].shape)
        rows = np.moveaxis(direction, axis, -1)
        place = (-1,) * (rows.ndim - 2) + (row,)
        rows[place] = np.linspace(1, 2, rows.shape[-1]) * (-1.0) ** np.arange(rows.shape[-1])
        return self.seen.pulled(node, direction, self.first)


def _by_axes(seen: Array, axis: int) -> Tokens | None:
    """The batch is the first axis along which nothing is seen but the end."""
    alone = [i for i, size in enumerate(seen.shape) if size == 1 or not np.moveaxis(seen, i, 0)[:-1].any()]
    if not alone:
        return (lambda x: np.moveaxis(x, axis, -1).reshape(1, -1, x.shape[axis])) if seen.all() else None
    if len(alone) == seen.ndim and seen.size > 1:
        return None  # tokens that do not see each other may as well be sequences
    batch = next((i for i in alone if seen.shape[i] > 1), alone[0])

    def tokens(x: Array) -> Array:
        rows = np.moveaxis(np.moveaxis(x, axis, -1), batch, 0)
        return rows.reshape(rows.shape[0], -1, rows.shape[-1])

    return tokens


def _by_rows(seen: Array, axis: int) -> Tokens | None:
    """Batch and tokens are one axis: sequences one after another, or token by token."""
    N, T = seen.size, int(seen.sum())
    if T == 0 or N % T or (T == 1 and N > 1):
        return None
    if seen[N - T :].all():
        return lambda x: np.moveaxis(x, axis, -1).reshape(N // T, T, -1)
    if seen[N // T - 1 :: N // T].all():
        return lambda x: np.moveaxis(x, axis, -1).reshape(T, N // T, -1).swapaxes(0, 1)
    return None
