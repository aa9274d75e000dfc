"""Here lives Recorder: what one forward pass computes, operator by operator, as the nodes of a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from normula.record.program import Call, Kind, Node
from normula.torch.capture import operators as words
from normula.torch.capture.arguments import SPECIAL, Arguments, number_of
from normula.torch.capture.memory import Memory


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records inside `recording`.

    Args:
        model: whose parameters and buffers are leaves with names.
        inputs: tensors that the forward pass is given, with their names.
        keep: the nodes whose values are kept, in `kept`.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[tuple[str, Tensor]], keep: frozenset[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.kept: dict[int, np.ndarray] = {}
        self.calls: list[Call] = [Call("", 0, -1)]
        self.called: set[str] = set()
        self._keep = keep
        self._call = 0
        self._memory = Memory(
            lambda old, new, tensor: self.emit("write", (old, *new), tensor),
            lambda new, tensor: self.emit("view", (new,), tensor, name="part"),
        )
        self._stopped: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._numbers: dict[float, int] = {}
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._kinds: dict[str, int] = {}
        self.overwritten: list[tuple[Tensor, Tensor]] = []
        self._parameters: dict[int, Tensor] = {
            one.untyped_storage()._cdata: one
            for one in model.parameters()
            if one.layout is torch.strided and not one.is_meta
        }
        self._leaves(model, inputs)

    # ---- modules

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, all that runs is recorded, with the calls of modules."""
        register = nn.modules.module
        hooks = [
            register.register_module_forward_pre_hook(self._enter_module),
            register.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter_module(self, module: nn.Module, _: Any) -> None:
        path = self._paths.get(id(module), "")
        self.called.add(path)
        kind = self._kinds.setdefault(f"{type(module).__module__}.{type(module).__qualname__}", len(self._kinds))
        self.calls.append(Call(path, kind, self._call))
        self._call = len(self.calls) - 1

    def _leave_module(self, *_: Any) -> None:
        self._call = max(self.calls[self._call].parent, 0)

    # ---- nodes

    def emit(
        self,
        kind: Kind,
        inputs: Sequence[int],
        like: Tensor,
        value: Callable[[], Tensor] | None = None,
        **attrs: Any,
    ) -> int:
        """A new node; its shape and type are those of a tensor, and so is its value unless another is given."""
        number = len(self.nodes)
        dtype = str(like.dtype).removeprefix("torch.")
        self.nodes.append(Node(kind, tuple(inputs), tuple(like.shape), dtype, self._call, attrs))
        if number in self._keep:
            self.kept[number] = _array(like if value is None else value())
        return number

    def read(self, tensor: Tensor) -> int:
        """The node that a tensor holds; one from outside becomes a constant."""
        if tensor.layout is not torch.strided or not _has_storage(tensor):
            return self.emit("opaque", (), tensor, name="layout")
        node = self._memory.read(tensor)
        if tensor in self._stopped:
            before, stopped = self._stopped[tensor]
            node = stopped if node == before else node  # it may have been changed in place since
        if node is None:
            node = self.emit("constant", (), tensor, **number_of(tensor))
            self._memory.hold(tensor, node)
        return node

    def number(self, value: float) -> int:
        """The node of a number that is written in the code."""
        if value not in self._numbers:
            self._numbers[value] = len(self.nodes)
            self.nodes.append(Node("constant", (), (), "number", self._call, {"number": value}))
        return self._numbers[value]

    def _leaves(self, model: nn.Module, inputs: Sequence[tuple[str, Tensor]]) -> None:
        named: dict[int, tuple[Tensor, Kind, list[str]]] = {}
        leaves: list[tuple[str, Tensor, Kind]] = [
            *((name, one, "parameter") for name, one in model.named_parameters(remove_duplicate=False)),
            *((name, one, "buffer") for name, one in model.named_buffers(remove_duplicate=False)),
        ]
        for name, tensor, kind in leaves:
            named.setdefault(id(tensor), (tensor, kind, []))[2].append(name)
        for tensor, kind, names in named.values():
            if tensor.layout is torch.strided and _has_storage(tensor):
                known = number_of(tensor) if kind == "buffer" else {}
                self._memory.hold(tensor, self.emit(kind, (), tensor, names=tuple(names), **known))
        for name, tensor in inputs:
            self._memory.hold(tensor, self.emit("input", (), tensor, name=name))

    # ---- operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _is_composite(func):  # in inference mode operators made of others come here whole
            with self:
                return func.decompose(*args, **kwargs)
        inputs = [self._read_all(argument) for argument in args]
        named = {key: self._read_all(argument) for key, argument in kwargs.items()}
        for tensor in _changed(func, args, kwargs):
            self._save(tensor)
        out = func(*args, **kwargs)
        self._record(func, args, kwargs, inputs, named, out)
        return out

    def _save(self, tensor: Tensor) -> None:
        """Keep what a parameter held before the forward pass changes it."""
        if tensor.layout is torch.strided and _has_storage(tensor):
            key = tensor.untyped_storage()._cdata
            if key in self._parameters:
                parameter = self._parameters.pop(key)
                self.overwritten.append((parameter, parameter.detach().clone()))

    def _read_all(self, argument: Any) -> Any:
        """The nodes of an argument's tensors, in the argument's shape; what is no tensor stays as it is."""
        if isinstance(argument, Tensor):
            return self.read(argument)
        if isinstance(argument, list | tuple):
            return [self._read_all(part) if isinstance(part, Tensor) else None for part in argument]
        return None

    def _record(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Any], named: Any, out: Any
    ) -> None:
        outs = list(_tensors(out))
        if not outs:
            return
        name = func._schema.name.split("::")[-1]
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        nodes = self._nodes_of(base, func, args, kwargs, inputs, named, outs)
        if base == "detach" and isinstance(inputs[0], int):  # it shares the memory of a value that is not stopped
            stopped = self.emit("view", (inputs[0],), outs[0], name="detach")
            self._stopped[outs[0]] = (self._memory.read(outs[0]), stopped)
        written = {id(tensor) for tensor in _changed(func, args, kwargs)}
        for tensor, node in zip(outs, nodes, strict=True):
            if tensor.layout is not torch.strided or not _has_storage(tensor):
                continue
            if id(tensor) in written:
                self._memory.change(tensor, node)
            else:
                self._memory.hold(tensor, node)

    def _nodes_of(
        self,
        base: str,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[Any],
        named: dict[str, Any],
        outs: list[Tensor],
    ) -> list[int]:
        """The nodes of an operator's results."""
        arguments = Arguments(self, func, args, kwargs, inputs, named, outs)
        flat = arguments.nodes()
        first = outs[0]
        if base in ("detach", "alias", "lift_fresh", "lift") and len(flat) == 1:
            return [flat[0]]
        if flat and all("number" in self.nodes[node].attrs for node in flat) and first.numel() == 1:
            return [self.emit("constant", (), one, **number_of(one)) for one in outs]
        if base in words.FACTORIES:
            return [self.emit("constant", (), one, **number_of(one)) for one in outs]
        special = SPECIAL.get(base)
        if special is not None:
            main = special(arguments, first)
        elif base in words.VIEWS:
            kind: Kind = "gather" if base in words.INDEXED else "view"
            return [self.emit(kind, flat, one, name=base) for one in outs]
        elif base in words.JOINS:
            main = self.emit("join", flat, first)
        elif base in words.WRITES:
            main = self.emit(
                "write",
                arguments.write_order(),
                first,
                name=base,
                adds="add" in base or bool(arguments.get("accumulate")),
            )
        elif base in words.PLAIN:
            main = self.emit(words.PLAIN[base], arguments.operands(), first, name=base)
        elif base in words.POINTWISE:
            main = self.emit("pointwise", arguments.operands(), first, name=base)
        elif base in words.COMPARISONS:
            return [self.emit("compare", flat, one, name=base) for one in outs]
        elif base in words.REDUCTIONS:
            axes = arguments.axes()
            statistic = words.REDUCTIONS[base]
            if statistic == "norm":
                statistic += f"{arguments.get('ord', arguments.get('p', 2)):g}"
            attrs: dict[str, Any] = {"correction": arguments.correction()} if statistic in ("var", "std") else {}
            main = self.emit("reduce", flat, first, name=statistic, axes=axes, **attrs)
            if base in ("var_mean", "std_mean"):
                return [main, self.emit("reduce", flat, outs[1], name="mean", axes=axes)]
        elif base in words.ATTENTIONS:
            main = self.emit("attention", flat, first, causal=bool(arguments.get("is_causal")))
        elif base in words.BATCHNORMS:
            main = self.emit("batchnorm", flat, first, batch=bool(arguments.get("training")), name=base)
        else:
            main = self.emit("opaque", flat, first, name=base)
        return [
            main,
            *(self.emit("opaque", (main,), one, name=f"{base} {i}") for i, one in enumerate(outs[1:], start=1)),
        ]


@lru_cache(maxsize=4096)
def _is_composite(func: Any) -> bool:
    """Whether an operator is nothing but a series of others."""
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def _changed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The arguments that an operator changes in place."""
    if not func._schema.is_mutable:
        return []
    changed = [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return list(_tensors(changed))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _has_storage(tensor: Tensor) -> bool:
    """Whether a tensor is laid out in memory of its own (those inside a vmap are not)."""
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _array(tensor: Tensor) -> np.ndarray:
    value = tensor.detach()
    if value.is_complex():
        value = torch.view_as_real(value)
    return value.to(device="cpu", dtype=torch.float64 if value.is_floating_point() else value.dtype).numpy().copy()
