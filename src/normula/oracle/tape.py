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


def einsum(subscripts: str, *values: Value) -> Value:
    """`numpy.einsum` with an arrow; every index of an operand stands in another operand or in the result."""
    inputs, result = subscripts.split("->")
    terms = inputs.split(",")

    def pull(place: int) -> Callable[[Array], Array]:
        others = [values[i].array for i in range(len(values)) if i != place]
        rest = [terms[i] for i in range(len(values)) if i != place]
        return lambda dy: np.einsum(f"{','.join([result, *rest])}->{terms[place]}", dy, *others)

    y = np.einsum(subscripts, *(value.array for value in values))
    return Value(y, [(value, pull(place)) for place, value in enumerate(values)])


def exp(x: Value) -> Value:
    """e to the power of each number."""
    return x.map(np.exp, np.exp)


def total(x: Value, axis: int) -> Value:
    """The sum along an axis, which stays with length 1."""
    return Value(x.array.sum(axis=axis, keepdims=True), [(x, lambda dy: np.broadcast_to(dy, x.array.shape))])


def reshape(x: Value, shape: tuple[int, ...]) -> Value:
    """The same numbers in another shape."""
    return Value(x.array.reshape(shape), [(x, lambda dy: dy.reshape(x.array.shape))])


def joined(first: Value, second: Value, axis: int) -> Value:
    """Two arrays side by side."""
    cut = first.array.shape[axis]
    y = np.concatenate([first.array, second.array], axis=axis)
    return Value(
        y,
        [
            (first, lambda dy: np.split(dy, [cut], axis=axis)[0]),
            (second, lambda dy: np.split(dy, [cut], axis=axis)[1]),
        ],
    )


def _to(value: Value) -> Callable[[Array], Array]:
    """Sums a gradient over the axes along which the value was repeated."""
    shape = value.array.shape

    def pull(dy: Array) -> Array:
        extra = dy.ndim - len(shape)
        axes = (
            *range(extra),
            *(extra + i for i, length in enumerate(shape) if length == 1 and dy.shape[extra + i] > 1),
        )
        return np.asarray(dy.sum(axis=axes)).reshape(shape) if axes else dy

    return pull
