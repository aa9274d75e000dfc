"""Arithmetic, element by element: as it stands, or as the mean, softmax, norm or bias that it is part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from normula.flax.capture import words
from normula.flax.capture.operation import Operation
from normula.flax.capture.patterns import (
    as_bias,
    as_exponential,
    as_mean,
    as_normed,
    as_softmax,
    is_exponential,
    is_variance,
)


def _add(a: Operation) -> int:
    one, other = a.operands()
    for value, zero in ((one, other), (other, one)):
        if a.recorder.number_of(zero) == 0 and a.recorder.nodes[value].shape == tuple(a.avals[0].shape):
            return value
    if all(a.recorder.nodes[node].attrs.get("spread") for node in (one, other)):
        return a.emit("scan", (one, other), name="interleave")  # the two halves of an associative scan
    for product, bias in ((one, other), (other, one)):
        if as_bias(a.recorder, product, bias):
            return a.emit(
                a.recorder.nodes[product].kind,
                (*a.recorder.nodes[product].inputs, bias),
                **a.recorder.nodes[product].attrs,
            )
    return a.emit("add", (one, other))


def _sub(a: Operation) -> int:
    one, other = a.operands()
    if a.recorder.number_of(other) == 0 and a.recorder.nodes[one].shape == tuple(a.avals[0].shape):
        return one
    return a.emit("sub", (one, other))


def _mul(a: Operation) -> int:
    one, other = a.operands()
    for value, factor, places in ((one, other, (0, 1)), (other, one, (1, 0))):
        if (mean := as_mean(a.recorder, value, factor, times=True)) is not None:
            return a.emit("reduce", (mean[0],), name="mean", axes=mean[1])
        if (node := as_normed(a, value, factor, a.ins[places[0]])) is not None:
            return node
    node = a.emit("mul", (one, other))
    for value, factor in ((0, 1), (1, 0)):
        if a.recorder.is_weight(a.nodes[factor]) and a.recorder.is_given(a.nodes[value]):
            a.recorder.factors[node] = a.ins[value], a.ins[factor]
    return node


def _div(a: Operation) -> int:
    one, other = a.operands()
    if (mean := as_mean(a.recorder, one, other, times=False)) is not None:
        return a.emit("reduce", (mean[0],), name="mean", axes=mean[1])
    if (scores := as_softmax(a.recorder, one, other)) is not None:
        return a.emit("softmax", (scores,))
    return a.emit("div", (one, other))


def _exponential(a: Operation) -> int:
    scores = as_exponential(a.recorder, a.nodes[0])
    return a.emit("pointwise", a.nodes, name="exp") if scores is None else a.emit("softmax", (scores,))


def _power(a: Operation) -> int:
    if a.params["y"] == -1:
        return a.emit("pointwise", a.nodes, name="reciprocal")
    return a.emit("pow", (a.nodes[0], a.recorder.number(float(a.params["y"]))))


def _square(a: Operation) -> int:
    return a.emit("pow", (a.nodes[0], a.recorder.number(2.0)))


def _bound(a: Operation) -> int:
    """The larger or smaller of two; the value first, then the number. A bound that binds nothing is none."""
    one, other = a.operands()
    if a.recorder.number_of(one) is not None:
        one, other = other, one
    bound = a.recorder.number_of(other)
    if bound is not None and a.recorder.nodes[one].shape == tuple(a.avals[0].shape):
        never = -np.inf if a.name == "max" else np.inf
        if bound == never or (a.name == "max" and bound == 0 and is_variance(a.recorder, one)):
            return one
    return a.emit("pointwise", (one, other), name=words.POINTWISE[a.name])


def _clamp(a: Operation) -> int:
    low, value, high = a.operands()
    return a.emit("pointwise", (value, low, high), name="clamp")


def _abs(a: Operation) -> int:
    total = a.recorder.nodes[a.recorder.through(a.nodes[0])]
    if total.kind == "reduce" and total.attrs["name"] == "sum" and is_exponential(a.recorder, total.inputs[0]):
        return a.nodes[0]  # positive as it is
    return a.emit("pointwise", a.nodes, name="abs")


ARITHMETIC: Mapping[str, Callable[[Operation], int]] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "abs": _abs,
    "exp": _exponential,
    "integer_pow": _power,
    "square": _square,
    "pow": lambda a: a.emit("pow", a.operands()),
    "max": _bound,
    "min": _bound,
    "clamp": _clamp,
}
