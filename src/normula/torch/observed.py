"""A forward pass of any module, watched node by node and differentiated again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normula.record.flow import WeightFlow
from normula.record.program import Program
from normula.record.stream import Probed, Watched
from normula.torch.capture import Model, module_of
from normula.torch.capture.nested import tensors
from normula.torch.passes import probe_loss
from normula.torch.sizes import length
from normula.torch.watch import Watcher, as_it_is, changed, computes, program_of, watched


def open_capture(model: Model, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """What a forward pass with gradients computes, which need not be what one without them does.

    Raises:
        ValueError: the model is on the meta device, where nothing has a value.
        Exception: whatever the forward raises.
    """
    module = module_of(model)
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise ValueError("A model on the meta device computes no values. Give it weights, or measure a smaller twin.")
    with as_it_is(module):
        return program_of(*watched(module, args, kwargs))


@contextmanager
def observed(
    model: Model, args: Sequence[Any], kwargs: Mapping[str, Any], program: Program, wanted: Watched
) -> Iterator[Observed | None]:
    """Inside: a watched pass; None where it computes something else than the program says.

    Args:
        model, args, kwargs: as they were for `open_capture`.
        program: what it gave.
        wanted: what the pass should show.
    """
    module = module_of(model)
    frozen = frozenset(name for name, parameter in module.named_parameters() if not parameter.requires_grad)
    with as_it_is(module):
        watcher, output = watched(module, args, kwargs, wanted.values, wanted.edges, wanted.held)
        yield Observed(module, watcher, output, frozen) if computes(watcher, program) else None


class Observed:
    """A watched pass; see `normula.flow.observed`."""

    own_rules = False  # autograd is asked itself

    def __init__(self, model: nn.Module, watcher: Watcher, output: Any, frozen: frozenset[str]) -> None:
        self.watcher, self.output, self.frozen = watcher, output, frozen
        self.parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self.values = {node: _array(value) for node, value in watcher.values.items()}
        self.edges = frozenset(watcher.edges)
        self.unheld = bool(watcher.unheld)
        self.norms = {name: length(one.detach()) for name, one in model.named_parameters()}

    def probed(self, nodes: Sequence[int], seed: int, probe: str, loss: Callable[[Any], Any] | None) -> Probed:
        """One probe: a backward pass as it is, and one with the sublayers held."""
        value, ends = probed_output(self.output, seed, probe, loss)
        of_nodes: list[Any] = [self.watcher.edges[node] for node in nodes]
        wanted = [*of_nodes, *ends, *self.parameters.values()]
        found = torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True) if wanted else ()
        of_ends = found[len(nodes) : len(nodes) + len(ends)]
        of_weights = dict(zip(self.parameters, found[len(nodes) + len(ends) :], strict=True))
        self.watcher.holding = True
        try:
            alone = torch.autograd.grad(value, of_nodes, retain_graph=True, allow_unused=True) if nodes else ()
        finally:
            self.watcher.holding = False
        return Probed(
            loss=math.nan if loss is None else value.item(),
            gradients=_arrays(nodes, found[: len(nodes)]),
            alone=_arrays(nodes, alone),
            output=math.sqrt(sum(length(one) ** 2 for one in of_ends)) if ends else math.nan,
            weights=tuple(self._weight(name, of_weights) for name in self.norms),
        )

    def pulled(self, node: int, direction: NDArray[Any], onto: int) -> NDArray[Any] | None:
        """The gradient of a value along a direction with respect to another."""
        along = torch.from_numpy(direction).to(self.watcher.values[node])
        edges = self.watcher.edges
        (gradient,) = torch.autograd.grad([edges[node]], [edges[onto]], [along], retain_graph=True, allow_unused=True)
        return None if gradient is None else _array(gradient)

    def _weight(self, name: str, gradients: Mapping[str, Tensor | None]) -> WeightFlow:
        gradient = None if name in self.frozen else gradients.get(name)
        return WeightFlow(name=name, norm=self.norms[name], gradient=length(gradient))


def probed_output(
    output: Any, seed: int, probe: str, loss: Callable[[Any], Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """The number that is differentiated, and the tensors of the output that it is made from."""
    ends: list[Tensor] = []

    def seen(tensor: Tensor) -> Tensor:
        if not (tensor.is_floating_point() and tensor.requires_grad):
            return tensor
        ends.append(tensor.view_as(tensor))  # so that its gradient is the probe's alone
        return ends[-1]

    if loss is None:
        first = next((tensor for tensor in tensors(output) if tensor.is_floating_point()), None)
        if first is None:
            raise ValueError("The model returns no tensor of floating-point numbers. Give a loss of what it returns.")
        end = seen(first)
        value = probe_loss(probe, seed, None)(end if end.dim() else end.reshape(1))
    else:
        value = loss(changed(output, seen))
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(f"A loss gives one number in a tensor, not {getattr(value, 'shape', value)!r}.")
    if not value.requires_grad:
        raise ValueError(
            "What is differentiated does not depend on any parameter or input. Does the forward run under no_grad?"
        )
    return value.reshape(()), ends


def _arrays(nodes: Sequence[int], gradients: Sequence[Tensor | None]) -> dict[int, NDArray[Any] | None]:
    return {node: None if one is None else _array(one) for node, one in zip(nodes, gradients, strict=True)}


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[np.float64] = tensor.detach().double().cpu().numpy()
    return array
