"""A forward pass with gradients, recorded: what the wanted nodes hold, and where autograd has their gradients.

Operators are recorded below autograd. What an operator returns there is the very tensor that autograd then gives a
history; that is noted before the next operator runs, so that a later change in place does not change it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import TracebackType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from normula.record.program import Kind, Program
from normula.torch.capture.nested import tensors
from normula.torch.capture.recorder import Recorder
from normula.torch.capture.scope import attributes, restore

SEED: Final = 0
"""Of what a forward draws in evaluation mode, so that two passes compute the same."""


class Watcher(Recorder):  # type: ignore[no-untyped-call]
    """A recorder that keeps values and gradient edges.

    Args:
        model, inputs: as a recorder has them.
        values: the nodes whose values are kept, in `values`.
        edges: the nodes whose places in the backward pass are kept, in `edges`.
        held: the nodes that no gradient goes into while `holding`, each with those that stand in for it where autograd
            does not see it: where it is only a part of what one operator computes.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[tuple[str, Tensor]],
        values: frozenset[int] = frozenset(),
        edges: frozenset[int] = frozenset(),
        held: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.values: dict[int, Tensor] = {}
        self.edges: dict[int, GradientEdge] = {}
        self.holding = False
        self._wanted, self._edges, self._held = values, edges, dict(held or {})
        self._stand_ins = {one for others in self._held.values() for one in others}
        self._hooked: set[int] = set()
        self._pending: list[tuple[int, Tensor, int | None]] = []
        self._before_operator = False
        super().__init__(model, inputs, frozenset())

    @property
    def unheld(self) -> tuple[int, ...]:
        """The nodes to be held that cannot be: autograd does not see them, nor anything that flows into them."""
        return tuple(end for end, others in self._held.items() if self._hooked.isdisjoint((end, *others)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._note_all()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._note_all()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def read(self, tensor: Tensor) -> int:
        self._before_operator = True
        try:
            return super().read(tensor)
        finally:
            self._before_operator = False

    def emit(
        self,
        kind: Kind,
        inputs: Sequence[int],
        like: Tensor,
        value: Callable[[], Tensor] | None = None,
        **attrs: Any,
    ) -> int:
        number = super().emit(kind, inputs, like, value, **attrs)
        if number in self._wanted:
            self.values[number] = (like if value is None else value()).detach().clone()
        if self._before_operator:  # what a tensor holds now, not a result
            self._note(number, like)
        elif value is None and (number in self._edges or number in self._held or number in self._stand_ins):
            self._pending.append((number, like, None))
        return number

    def _note_all(self) -> None:
        """Note the tensors that have a history by now; one operator of autograd may be several here, so others wait."""
        waiting: list[tuple[int, Tensor, int | None]] = []
        for number, tensor, version in self._pending:
            if version not in (None, tensor._version):
                continue  # it holds something else now
            if tensor.requires_grad:
                self._note(number, tensor)
            else:
                waiting.append((number, tensor, tensor._version))
        self._pending = waiting

    def _note(self, number: int, tensor: Tensor) -> None:
        if not tensor.requires_grad:
            return
        if number in self._edges:
            self.edges[number] = get_gradient_edge(tensor)
        if number in self._held or number in self._stand_ins:
            self._hooked.add(number)
            tensor.register_hook(lambda gradient: self._passed(number, gradient))  # type: ignore[no-untyped-call]

    def _passed(self, number: int, gradient: Tensor) -> Tensor | None:
        """The gradient that goes on into a node."""
        if not self.holding:
            return None
        stands_in = any(end not in self._hooked and number in others for end, others in self._held.items())
        return torch.zeros_like(gradient) if number in self._held or stands_in else None


def watched(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: frozenset[int] = frozenset(),
    edges: frozenset[int] = frozenset(),
    held: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[Watcher, Any]:
    """A watched pass, and what the model returned."""
    model = getattr(model, "_orig_mod", model)  # compiled code hides what it computes; the module inside does not
    args = changed(tuple(args), own)
    kwargs = changed(dict(kwargs), own)
    inputs = [(f"{i}", tensor) for i, tensor in enumerate(tensors(args))]
    inputs += [(name, tensor) for name, value in kwargs.items() for tensor in tensors(value)]
    watcher = Watcher(model, inputs, values, edges, held)
    try:
        with watcher.recording():
            output = model(*args, **kwargs)
    finally:
        for parameter, before in watcher.overwritten:
            parameter.data.copy_(before)
    return watcher, output


def program_of(watcher: Watcher, output: Any) -> Program:
    """The program of a watched pass."""
    outputs = tuple(dict.fromkeys(watcher.read(tensor) for tensor in tensors(output)))
    return Program(nodes=tuple(watcher.nodes), outputs=outputs, calls=tuple(watcher.calls))


def computes(watcher: Watcher, program: Program) -> bool:
    """Whether a watched pass computed what a program says."""
    both = list(zip(watcher.nodes, program.nodes, strict=False))
    same = all(
        one.kind == other.kind and one.inputs == other.inputs and one.shape == other.shape for one, other in both
    )
    return same and len(both) >= len(watcher.nodes)


@contextmanager
def as_it_is(model: nn.Module) -> Iterator[None]:
    """Inside: evaluation mode, gradients for every parameter, no fused fast path, a random state of its own.

    The model is as it was afterwards: modes, attributes, parameters and what they require, buffers, gradients.
    """
    held = [(module, attributes(module)) for module in model.modules()]
    parameters = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    states = random.getstate(), np.random.get_state()
    fast = torch.backends.mha.get_fastpath_enabled()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.random.fork_rng(devices=devices),
        torch.autograd.graph.allow_mutation_on_saved_tensors(),  # a model may add in place to what a norm has seen
    ):
        try:
            for module in model.modules():
                module.training = False
            for parameter, _ in parameters:
                if parameter.is_leaf and (parameter.is_floating_point() or parameter.is_complex()):
                    parameter.requires_grad_(True)
            torch.backends.mha.set_fastpath_enabled(False)
            torch.manual_seed(SEED)
            random.seed(SEED)
            np.random.seed(SEED)
            yield
        finally:
            for module, before in held:
                restore(module, before)
            for parameter, wanted in parameters:
                if parameter.is_leaf:
                    parameter.requires_grad_(wanted)
            for buffer, value in buffers:
                buffer.data.copy_(value)
            torch.backends.mha.set_fastpath_enabled(fast)
            random.setstate(states[0])
            np.random.set_state(states[1])


def changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A nested value with other tensors in it; what is no list, tuple or mapping stays as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        parts = [changed(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        result = copy(value)
        for key, part in value.items():
            if part is not None:
                result[key] = changed(part, change)
        return result
    return value


def own(tensor: Tensor) -> Tensor:
    """A copy that the forward may change in place, with a gradient where it can have one; the caller's gets none."""
    tensor = tensor.detach()
    return tensor.requires_grad_(True).clone() if _takes_gradients(tensor) else tensor.clone()


def _takes_gradients(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
