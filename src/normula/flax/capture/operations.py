"""The nodes of one primitive operation: one word of the vocabulary each, but for those that need more care."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from normula.flax.capture import words
from normula.flax.capture.arithmetic import ARITHMETIC
from normula.flax.capture.operation import Operation
from normula.flax.capture.recorder import plain, shaped
from normula.record.program import Kind


def record(operation: Operation) -> list[int]:
    """The nodes of an operation's results."""
    name = operation.name
    special = SPECIAL.get(name)
    if special is not None:
        main = special(operation)
    elif name in words.VIEWS:
        return _view(operation)
    elif name in words.PLAIN:
        main = operation.emit(words.PLAIN[name], operation.nodes, name=name)
    elif name in words.POINTWISE:
        main = operation.emit("pointwise", operation.operands(), name=words.POINTWISE[name])
    elif name in words.REDUCTIONS:
        axes = tuple(int(axis) for axis in operation.params["axes"])
        main = operation.emit("reduce", operation.nodes, name=words.REDUCTIONS[name], axes=axes)
    elif name in words.COMPARISONS:
        main = operation.emit("compare", operation.nodes, name=name)
    elif name in words.WRITES:
        main = operation.emit("write", _write_order(operation), name=name, adds="add" in name or "sub" in name)
    elif name in words.RANDOM:
        return [
            operation.recorder.emit("constant", (), aval, value)
            for aval, value in zip(operation.avals, operation.values, strict=True)
        ]
    else:
        main = operation.emit("opaque", operation.nodes, name=name)
    others: Kind = "choose" if words.PLAIN.get(name) == "choose" else "opaque"
    return [
        main,
        *(
            operation.recorder.emit(
                others, operation.nodes if others == "choose" else (main,), aval, value, name=f"{name} {place}"
            )
            for place, (aval, value) in enumerate(zip(operation.avals[1:], operation.values[1:], strict=True), start=1)
        ),
    ]


def _view(a: Operation) -> list[int]:
    name = words.VIEWS[a.name]
    sliced = _sliced(a) if name == "slice" else None
    if sliced is not None:
        return [sliced]
    attrs: dict[str, Any] = {"order": tuple(a.params["permutation"])} if a.name == "transpose" else {}
    if a.name == "pad":
        attrs["spread"] = any(inside for _, _, inside in a.params["padding_config"])
    if len(a.ins) == len(a.avals) > 1:
        return [
            a.recorder.emit("view", (node,), aval, value, name=name)
            for node, aval, value in zip(a.nodes, a.avals, a.values, strict=True)
        ]
    found = [
        a.recorder.emit("view", a.nodes, aval, value, name=name, **attrs)
        for aval, value in zip(a.avals, a.values, strict=True)
    ]
    if name == "_to_copy" and a.recorder.is_weight(a.nodes[0]):
        a.recorder.casts[found[0]] = a.ins[0]
    return found


def _sliced(a: Operation) -> int | None:
    """One layer's slice of a stacked parameter."""
    whole, shape = a.ins[0], tuple(a.avals[0].shape)
    old = tuple(whole.aval.shape)
    if not old or shape != (1, *old[1:]) or old[0] == 1:
        return None
    if a.name == "slice":
        index = int(a.params["start_indices"][0])
    elif a.ins[1].fixed and a.ins[1].value is not None:
        index = min(max(int(a.ins[1].value), 0), old[0] - 1)
    else:
        return None
    part = a.recorder.part(whole, index)
    return None if part is None else a.emit("view", (part.node,), name="unsqueeze")


def _broadcast(a: Operation) -> int:
    """Axes of length 1, then repeated along them."""
    source, shape = a.ins[0], tuple(a.params["shape"])
    axes = [int(axis) for axis in a.params["broadcast_dimensions"]]
    old = tuple(source.aval.shape)
    narrow = tuple(old[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape)))
    node = source.node
    if narrow != old:
        node = a.recorder.emit(
            "view",
            (node,),
            shaped(narrow, source.aval.dtype),
            lambda: plain(source.value).reshape(narrow),
            name="unsqueeze",
        )
    if narrow == shape:
        return node
    wide = a.emit("view", (node,), name="expand")
    a.recorder.compact[wide] = a.recorder.compact.get(node, node)
    return wide


def _reshape(a: Operation) -> int:
    old, new = tuple(a.ins[0].aval.shape), tuple(a.avals[0].shape)
    if old == new:
        return a.nodes[0]
    same = [length for length in old if length != 1] == [length for length in new if length != 1]
    name = "view" if not same else "unsqueeze" if len(new) > len(old) else "squeeze"
    return a.emit("view", a.nodes, name=name)


def _select(a: Operation) -> int:
    """A choice between values: a mask on the one that is not the same number everywhere."""
    which, cases = a.ins[0], a.ins[1:]
    if (known := a.recorder.number_of(which.node)) is not None:
        return cases[int(known)].node
    nodes = [one.node for one in reversed(cases)]
    whole = [node for node in nodes if a.recorder.number_of(a.recorder.compact.get(node, node)) is None]
    if not whole:
        return a.emit("compare", (which.node, *nodes), name="where")
    rest = [node for node in nodes if node not in whole]
    if len(whole) == 1:
        return a.emit("view", (whole[0], which.node, *rest), name="mask")
    return a.emit("join", (*nodes, which.node), name="where")


def _product(a: Operation) -> int:
    """A product of matrices; a weight is the second factor."""
    (left, right), _ = a.params["dimension_numbers"]
    one, other = a.nodes
    sides = [len(a.ins[0].aval.shape), len(a.ins[1].aval.shape)]
    batch = len(a.params["dimension_numbers"][1][0])
    free = [sides[0] - len(left) - batch, sides[1] - len(right) - batch]
    attrs = {"batch": batch, "free": tuple(free)}
    weights = [a.recorder.is_weight(node) for node in (one, other)]
    if weights[0] and not weights[1]:
        return a.emit("matmul", (other, one), features=free[0], turned=True, **attrs)
    return a.emit("matmul", (one, other), features=free[1], turned=False, **attrs)


def _conv(a: Operation) -> int:
    """A convolution; its weight with output channels first, then input channels, as PyTorch's."""
    weight, spec = a.ins[1], a.params["dimension_numbers"].rhs_spec
    shape = tuple(weight.aval.shape[axis] for axis in spec)
    node = weight.node
    if tuple(spec) != tuple(range(len(spec))):
        node = a.recorder.emit(
            "view",
            (node,),
            shaped(shape, weight.aval.dtype),
            lambda: plain(weight.value).transpose(spec),
            name="permute",
            order=tuple(spec),
        )
    groups = int(a.params["feature_group_count"])
    return a.emit("conv", (a.nodes[0], node), spatial=shape[2:], groups=groups, features=1)


def _gather(a: Operation) -> int:
    table = a.recorder.through(a.nodes[0])
    is_lookup = a.recorder.nodes[table].kind == "parameter" and len(a.recorder.nodes[table].shape) >= 2
    if is_lookup and not a.ins[1].fixed:
        return a.emit("lookup", (table, *a.nodes[1:]))
    return a.emit("gather", a.nodes, name="index")


def _write_order(a: Operation) -> list[int]:
    """The value that is written into, the values that are written, then the indices."""
    if a.name.startswith("scatter"):
        target, indices, values = a.nodes[:3]
        return [target, values, indices]
    return a.nodes


SPECIAL: Mapping[str, Callable[[Operation], int]] = {
    **ARITHMETIC,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "select_n": _select,
    "dot_general": _product,
    "ragged_dot": lambda a: a.emit("matmul", a.nodes, features=1, turned=False, batch=0, free=(1, 1)),
    "conv_general_dilated": _conv,
    "gather": _gather,
}
