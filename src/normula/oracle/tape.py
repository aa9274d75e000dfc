"""A reverse-mode tape: values remember how to send a gradient back to what they were made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from normula.oracle.norms import Array


class Value:
    """An array on the tape; `gradient` is filled by `backward`."""

    def __init__(self, array: Array, sources: Sequence[tuple[Value, Callable[[Array], Array]]] = ()) -> None:
        self.array = np.asarray(array, dtype=np.float64)
        self.sources = sources
        self.gradient = np.zeros_like(self.array)

    def __add__(self, other: Value) -> Value:
        return Value(self.array + other.array, [(self, _to(self)), (other, _to(other))])

    def __sub__(self, other: Value) -> Value:
        return self + -other

    def __neg__(self) -> Value:
        return Value(-self.array, [(self, lambda dy: -dy)])

    def __mul__(self, other: Value) -> Value:
        return Value(
            self.array * other.array,
            [(self, lambda dy: _to(self)(dy * other.array)), (other, lambda dy: _to(other)(dy * self.array))],
        )

    def __truediv__(self, other: Value) -> Value:
        return self * other ** Value(np.array(-1.0))

    def __pow__(self, other: Value) -> Value:
        """A power with a fixed exponent."""
        p = other.array
        return Value(self.array**p, [(self, lambda dy: dy * p * self.array ** (p - 1))])

    def map(self, function: Callable[[Array], Array], derivative: Callable[[Array], Array]) -> Value:
        """The function of each number."""
        return Value(function(self.array), [(self, lambda dy: dy * derivative(self.array))])


def backward(end: Value, gradient: Array) -> None:
    """Add to `gradient` of every value below `end`, the last one first."""
    end.gradient = end.gradient + gradient
    for value in reversed(_ordered(end)):
        for source, pull in value.sources:
            source.gradient = source.gradient + pull(value.gradient)


def _ordered(end: Value) -> list[Value]:
    """All values below `end`, each after what it was made of."""
    seen: set[int] = set()
    ordered: list[Value] = []
    todo: list[tuple[Value, bool]] = [(end, False)]
    while todo:
        value, done = todo.pop()
        if done:
            ordered.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            todo.append((value, True))
            todo += [(source, False) for source, _ in value.sources]
    return ordered


def _to(value: Value) -> Callable[[Array], Array]:
    """Sums a gradient over the axes along which the value was repeated."""

    def pull(dy: Array) -> Array:
        extra = dy.ndim - value.array.ndim
        return np.asarray(dy.sum(axis=tuple(range(extra)))) if extra else dy

    return pull
