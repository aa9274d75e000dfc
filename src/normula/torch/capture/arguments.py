"""The arguments of one operator, and the operators that one word of a Program's vocabulary does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from normula.record.program import Kind, Node


@runtime_checkable
class Emitter(Protocol):
    """What adds nodes to a program."""

    nodes: list[Node]

    def emit(
        self,
        kind: Kind,
        inputs: Sequence[int],
        like: Tensor,
        value: Callable[[], Tensor] | None = None,
        **attrs: Any,
    ) -> int: ...

    def number(self, value: float) -> int: ...


class Arguments:
    """The arguments of one operator, by name."""

    def __init__(
        self,
        recorder: Emitter,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[Any],
        named: dict[str, Any],
        outs: list[Tensor],
    ) -> None:
        self.recorder, self.outs = recorder, outs
        self.values: dict[str, Any] = {}
        self.held: dict[str, Any] = {}
        for place, argument in enumerate(func._schema.arguments):
            if place < len(args):
                self.values[argument.name], self.held[argument.name] = args[place], inputs[place]
            elif argument.name in kwargs:
                self.values[argument.name], self.held[argument.name] = kwargs[argument.name], named[argument.name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name, default)
        return default if value is None else value

    def node(self, name: str) -> int | None:
        held = self.held.get(name)
        return held if isinstance(held, int) else None

    def nodes(self) -> list[int]:
        """All tensors, in order."""
        found: list[int] = []
        for held in self.held.values():
            if isinstance(held, int):
                found.append(held)
            elif isinstance(held, list):
                found += [one for one in held if one is not None]
        return found

    def operands(self) -> list[int]:
        """The tensors and the numbers, in order, of an operator that computes element by element."""
        found: list[int] = []
        for name, value in self.values.items():
            held = self.held[name]
            if isinstance(held, int):
                found.append(held)
            elif (
                isinstance(value, int | float) and not isinstance(value, bool) and name in ("self", "other", "exponent")
            ):
                found.append(self.recorder.number(float(value)))
        return found

    def write_order(self) -> list[int]:
        """The value that is written into, the values that are written, then the indices."""
        first = self.node("self")
        if first is None:
            first = self.node("input")
        values = [self.node(name) for name in ("values", "source", "src", "value", "tensor")]
        ordered = [one for one in (first, *values) if one is not None]
        return ordered + [one for one in self.nodes() if one not in ordered]

    def correction(self) -> float:
        """What a variance takes off the number of elements that it divides by: 1 where nothing else is said."""
        given = self.get("correction")
        return float(bool(self.get("unbiased", True))) if given is None else float(given)

    def axes(self) -> tuple[int, ...]:
        """The axes of a reduction, counted from 0."""
        tensor = self.values.get("self", self.values.get("input"))
        assert isinstance(tensor, Tensor)
        given = self.get("dim")
        if given is None or given == []:
            return tuple(range(tensor.dim()))
        return tuple(axis % max(tensor.dim(), 1) for axis in ([given] if isinstance(given, int) else given))


# ---- operators that say more than one word, or several


def _add(a: Arguments, out: Tensor) -> int:
    return _sum(a, out, "add")


def _sub(a: Arguments, out: Tensor) -> int:
    return _sum(a, out, "sub")


def _sum(a: Arguments, out: Tensor, kind: Kind) -> int:
    left, right = a.operands()[:2]
    alpha = a.get("alpha", 1)
    if alpha != 1:
        other = a.values["other"]
        scale = a.recorder.number(float(alpha))
        like = other if isinstance(other, Tensor) else out
        right = a.recorder.emit("mul", (right, scale), like, value=lambda: alpha * other, name="alpha")
    return a.recorder.emit(kind, (left, right), out)


def _rsub(a: Arguments, out: Tensor) -> int:
    left, right = a.operands()[:2]
    return a.recorder.emit("sub", (right, left), out)


def _is_bias(nodes: Sequence[Node], node: int) -> bool:
    """Whether a value is a vector that does not come from the model's inputs."""
    one = nodes[node]
    while one.kind == "view":
        one = nodes[one.inputs[0]]
    return one.kind in ("parameter", "buffer") and len(one.shape) <= 1


def _addmm(a: Arguments, out: Tensor) -> int:
    """beta * input + alpha * (one @ other): a matrix product with its bias, or a sum."""
    factors = [
        n
        for n in (a.node("mat1"), a.node("mat2"), a.node("batch1"), a.node("batch2"), a.node("vec"), a.node("mat"))
        if n is not None
    ]
    base = a.node("self")
    assert base is not None
    beta, alpha = float(a.get("beta", 1)), float(a.get("alpha", 1))
    emit = a.recorder.emit
    if beta == 1 and alpha == 1 and _is_bias(a.recorder.nodes, base):
        return emit("matmul", (*factors, base), out)
    product = emit("matmul", factors, out, value=lambda: out - beta * a.values["self"])
    if beta == 0:
        return product
    if beta != 1:
        base = emit("mul", (base, a.recorder.number(beta)), a.values["self"], value=lambda: beta * a.values["self"])
    return emit("add", (base, product), out)


def _addcmul(a: Arguments, out: Tensor) -> int:
    emit, base = a.recorder.emit, a.node("self")
    one, other = a.node("tensor1"), a.node("tensor2")
    assert base is not None
    assert one is not None
    assert other is not None
    product = emit("mul", (one, other), out, value=lambda: out - a.values["self"])
    if (scale := float(a.get("value", 1))) != 1:
        product = emit("mul", (product, a.recorder.number(scale)), out, value=lambda: out - a.values["self"])
    return emit("add", (base, product), out)


def _lerp(a: Arguments, out: Tensor) -> int:
    """start + weight * (end - start)."""
    emit, start, end = a.recorder.emit, a.node("self"), a.node("end")
    assert start is not None
    assert end is not None
    weight = a.node("weight")
    if weight is None:
        weight = a.recorder.number(float(a.values["weight"]))
    difference = emit("sub", (end, start), out, value=lambda: a.values["end"] - a.values["self"])
    scaled = emit("mul", (difference, weight), out, value=lambda: out - a.values["self"])
    return emit("add", (start, scaled), out)


def _copy(a: Arguments, out: Tensor) -> int:
    source = a.node("src")
    assert source is not None
    return a.recorder.emit("view", (source,), out, name="copy")


def _fill(a: Arguments, out: Tensor) -> int:
    return a.recorder.emit("constant", (), out, **number_of(out))


def _where(a: Arguments, out: Tensor) -> int:
    """A choice between two values: a mask on the first where the second is the same everywhere."""
    condition, one, other = a.node("condition"), a.node("self"), a.node("other")
    emit = a.recorder.emit
    chosen = [n for n in (one, other) if n is not None]
    sizes = [a.recorder.nodes[n].size for n in chosen]
    whole = [n for n, size in zip(chosen, sizes, strict=True) if size > 1]
    rest = [n for n in (condition, *chosen) if n is not None and n not in whole[:1]]
    if len(whole) == 1:
        return emit("view", (whole[0], *rest), out, name="mask")
    return emit("join", [*chosen, *([condition] if condition is not None else [])], out, name="where")


def _lookup(a: Arguments, out: Tensor) -> int:
    weight, ids = a.node("weight"), a.node("indices")
    return a.recorder.emit("lookup", [n for n in (weight, ids) if n is not None], out)


def _conv(a: Arguments, out: Tensor) -> int:
    weight = a.values["weight"]
    inputs = [n for n in (a.node("input"), a.node("weight"), a.node("bias")) if n is not None]
    if a.node("input") is None:
        inputs = a.nodes()
    return a.recorder.emit("conv", inputs, out, spatial=tuple(weight.shape[2:]), groups=int(a.get("groups", 1)))


def _layernorm(a: Arguments, out: Tensor) -> int:
    x = a.values["input"]
    axes = tuple(range(x.dim() - len(a.values["normalized_shape"]), x.dim()))
    return _norm(a, out, "layernorm", axes, float(a.values["eps"]))


def _rmsnorm(a: Arguments, out: Tensor) -> int:
    x = a.values["input"]
    axes = tuple(range(x.dim() - len(a.values["normalized_shape"]), x.dim()))
    eps = a.get("eps")
    return _norm(a, out, "rmsnorm", axes, torch.finfo(x.dtype).eps if eps is None else float(eps))


def _groupnorm(a: Arguments, out: Tensor) -> int:
    groups = int(a.values["group"])
    axes = tuple(range(1, a.values["input"].dim()))
    return _norm(a, out, "groupnorm", axes, float(a.values["eps"]), groups=groups)


def _norm(a: Arguments, out: Tensor, name: str, axes: tuple[int, ...], eps: float, groups: int = 1) -> int:
    source, gain, bias = a.node("input"), a.node("weight"), a.node("bias")
    assert source is not None
    inputs = [source]
    places: dict[str, Any] = {}
    for label, node in (("gain", gain), ("bias", bias)):
        places[label] = len(inputs) if node is not None else -1
        if node is not None:
            inputs.append(node)
    return a.recorder.emit("norm", inputs, out, name=name, axes=axes, eps=_short(eps), groups=groups, **places)


SPECIAL: dict[str, Callable[[Arguments, Tensor], int]] = {
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addbmm": _addmm,
    "addmv": _addmm,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "copy": _copy,
    "fill": _fill,
    "zero": _fill,
    "where": _where,
    "embedding": _lookup,
    "convolution": _conv,
    "_convolution": _conv,
    "native_layer_norm": _layernorm,
    "_fused_rms_norm": _rmsnorm,
    "native_group_norm": _groupnorm,
}


def number_of(tensor: Tensor) -> dict[str, Any]:
    """The one number that a real tensor holds."""
    if tensor.numel() != 1 or tensor.device.type == "meta" or tensor.is_complex():
        return {}
    value = float(tensor.detach().reshape(()).double())
    return {"number": _short(value) if tensor.dtype == torch.float32 else value}


def _short(value: float) -> float:
    """A number to the seven digits that single precision holds: 1e-5, not 9.9999997e-6."""
    return float(f"{value:.7g}")
