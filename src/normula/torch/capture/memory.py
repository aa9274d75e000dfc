"""Here lives Memory: which node a tensor holds, through views and in-place operations.

Tensors are known by their storage and their place in it, not by their Python objects: a view that was changed in
place changes what every other view of the storage reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

Place: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], str]
"""Offset, shape, strides and type: where in its storage a tensor stands."""

EXACT_SIZE: Final = 1 << 16
"""Up to this many elements, whether two views overlap is computed element by element; above, by their ranges."""


@dataclass(slots=True)
class _Storage:
    """What the places of one storage hold; `writes` are the in-place changes in order, each after so many before it."""

    alive: StorageWeakRef
    held: dict[Place, tuple[int, int]] = field(default_factory=dict)
    writes: list[tuple[Place, int]] = field(default_factory=list)


class Memory:
    """The node that each tensor holds.

    Args:
        written: makes the node of a value into which others were written: (old, new ones, tensor).
        covered: makes the node of a value that is all part of a newer one: (new, tensor).
    """

    def __init__(self, written: Callable[[int, list[int], Tensor], int], covered: Callable[[int, Tensor], int]) -> None:
        self._written, self._covered = written, covered
        self._storages: dict[int, _Storage] = {}

    def read(self, tensor: Tensor) -> int | None:
        """The node that a tensor holds; None for one that was never seen."""
        storage = self._storage(tensor)
        place = _place(tensor)
        found = storage.held.get(place)
        if found is None:
            return self._from_alias(storage, place, tensor)
        node, seen = found
        for where, new in storage.writes[seen:]:
            if _covers(where, place):
                node = self._covered(new, tensor)
            elif _overlap(where, place):
                node = self._written(node, [new], tensor)
        storage.held[place] = (node, len(storage.writes))
        return node

    def hold(self, tensor: Tensor, node: int) -> None:
        """A tensor holds a new value, or is a new view."""
        storage = self._storage(tensor)
        storage.held[_place(tensor)] = (node, len(storage.writes))

    def change(self, tensor: Tensor, node: int) -> None:
        """A tensor was changed in place: so was all that shares its storage."""
        storage = self._storage(tensor)
        place = _place(tensor)
        storage.writes.append((place, node))
        storage.held[place] = (node, len(storage.writes))

    def _storage(self, tensor: Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._storages[key] = _Storage(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return self._storages[key]

    def _from_alias(self, storage: _Storage, place: Place, tensor: Tensor) -> int | None:
        """The node of a view that no operation made in our sight: it is part of one that covers it."""
        for where in storage.held:
            if _covers(where, place):
                node = self._covered(storage.held[where][0], tensor)
                storage.held[place] = (node, storage.held[where][1])
                return self.read(tensor)
        return None


def _place(tensor: Tensor) -> Place:
    return int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)


def _range(place: Place) -> tuple[int, int]:
    """The first and the last element of the storage that a place may touch."""
    offset, shape, strides, _ = place
    return offset, offset + sum(stride * (length - 1) for length, stride in zip(shape, strides, strict=True))


def _elements(place: Place) -> np.ndarray | None:
    """The elements of the storage that a place touches, where they are few."""
    offset, shape, strides, _ = place
    if int(np.prod(shape, dtype=np.int64)) > EXACT_SIZE:
        return None
    total = np.full(shape, offset, dtype=np.int64)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(length, dtype=np.int64) * stride
        total += steps.reshape([-1 if axis == other else 1 for other in range(len(shape))])
    return total.ravel()


def _covers(outer: Place, inner: Place) -> bool:
    """Whether all that one place touches, another touches too."""
    if 0 in inner[1] or 0 in outer[1]:
        return False
    low, high = _range(outer)
    first, last = _range(inner)
    if first < low or last > high:
        return False
    if int(np.prod(outer[1], dtype=np.int64)) == high - low + 1:
        return True
    whole, part = _elements(outer), _elements(inner)
    return whole is not None and part is not None and bool(np.isin(part, whole).all())


def _overlap(one: Place, other: Place) -> bool:
    """Whether two places share an element."""
    if 0 in one[1] or 0 in other[1]:
        return False
    (low, high), (first, last) = _range(one), _range(other)
    if last < low or first > high:
        return False
    some, others = _elements(one), _elements(other)
    return some is None or others is None or bool(np.isin(some, others).any())
