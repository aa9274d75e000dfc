"""What a forward and two backward passes of any model show of a stream that was read, node by node.

The gradient of the skip path is that of a second backward pass in which no gradient goes into a sublayer's output: as
if every sublayer gave a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from normula.record.flow import Pass, StepFlow, WeightFlow
from normula.record.program import Program
from normula.record.stream import LastNorm, Stream, StreamFlow, StreamStep, Term
from normula.torch.capture.nested import tensors
from normula.torch.passes import probe_loss
from normula.torch.sizes import length, rms, step_cosine, token_cosine
from normula.torch.tokens import Layouts
from normula.torch.watch import Watcher, as_it_is, changed, computes, program_of, watched

NORMS: Final = ("layernorm", "rmsnorm", "l2norm")
"""Those whose Jacobian is a projection."""


def open_capture(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """What a forward pass with gradients computes, which need not be what one without them does.

    Raises:
        ValueError: the model is on the meta device, where nothing has a value.
        Exception: whatever the forward raises.
    """
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError("A model on the meta device computes no values. Give it weights, or measure a smaller twin.")
    with as_it_is(model):
        return program_of(*watched(model, args, kwargs))


def stream_flow(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    program: Program,
    stream: Stream,
    *,
    seeds: Sequence[int],
    probe: str,
    loss: Callable[[Any], Tensor] | None = None,
    report: Callable[[], None] = lambda: None,
) -> StreamFlow | None:
    """The measurements of a stream; None where this pass computes something else than the program says.

    Args:
        model, args, kwargs: as they were for `open_capture`.
        program: what it gave.
        stream: its steps by node.
        seeds: of random probes.
        probe: `random` or `sum`, of the first tensor that the model returns; `loss` with a loss.
        loss: from what the model returns to one number.
        report: called after each pass.

    Raises:
        ValueError: there is nothing to differentiate.
    """
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    values, edges = _wanted(stream)
    with as_it_is(model):
        watcher, output = watched(model, args, kwargs, values, edges, dict(stream.held))
        if not computes(watcher, program):
            return None
        measured = _Measured(model, watcher, stream, frozen)
        passes = []
        for seed in seeds:
            passes.append(measured.one(output, seed, probe, loss))
            report()
    return StreamFlow(
        passes=tuple(passes),
        identity=max((_identity(watcher.values, step) for step in stream.steps), default=math.nan),
        tokens=all(measured.layouts.of(step.after) is not None for step in stream.steps),
        unseen=tuple(place for place, step in enumerate(stream.steps) if step.place not in watcher.edges),
        unheld=bool(watcher.unheld),
    )


def _wanted(stream: Stream) -> tuple[frozenset[int], frozenset[int]]:
    """The nodes whose values, and those whose gradients a measurement needs."""
    values = {stream.steps[0].before} if stream.steps else set()
    edges = {stream.start, *(step.after for step in stream.steps), *(step.before for step in stream.steps)}
    for step in stream.steps:
        terms = {node for _, node in (*step.branch, *step.skip, *step.carried)}
        values |= {step.before, step.after, step.total} | terms
        edges.add(step.place)
    for norm in stream.norms:
        values |= {norm.source, norm.gain}
        edges |= {norm.source, norm.node}
    return frozenset(values - {-1}), frozenset(edges - {-1})


class _Measured:
    """A watched pass that is differentiated, once for each probe."""

    def __init__(self, model: nn.Module, watcher: Watcher, stream: Stream, frozen: set[str]) -> None:
        self.model, self.watcher, self.stream, self.frozen = model, watcher, stream, frozen
        self.parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self.layouts = Layouts(watcher, stream)
        wanted = {stream.start, *(step.place for step in stream.steps)}
        wanted |= {node for norm in stream.norms for node in (norm.source, norm.node)}
        self.wanted = [node for node in watcher.edges if node in wanted]

    def one(self, output: Any, seed: int, probe: str, loss: Callable[[Any], Tensor] | None) -> Pass:
        """One probe: a backward pass as it is, and one with the sublayers held."""
        value, ends = _probed(output, seed, probe, loss)
        names = self.wanted
        wanted: list[Any] = [*(self.watcher.edges[name] for name in names), *ends, *self.parameters.values()]
        found = torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True) if wanted else ()
        gradients = dict(zip(names, found, strict=False))
        of_ends = found[len(names) : len(names) + len(ends)]
        of_weights = dict(zip(self.parameters, found[len(names) + len(ends) :], strict=True))
        self.watcher.holding = True
        try:
            of_names = wanted[: len(names)]
            alone = torch.autograd.grad(value, of_names, retain_graph=True, allow_unused=True) if names else ()
        finally:
            self.watcher.holding = False
        skip = dict(zip(names, alone, strict=True))
        return Pass(
            seed=seed,
            training_step=0,
            loss=math.nan if loss is None else value.item(),
            steps=tuple(self._step(step, gradients, skip) for step in self.stream.steps),
            weights=tuple(self._weight(name, one, of_weights) for name, one in self.model.named_parameters()),
            input_gradient=self._length(gradients, self.stream.start),
            skip_gradient=self._skip_length(skip, self.stream.start, 1),
            output_gradient=math.sqrt(sum(length(one) ** 2 for one in of_ends)) if ends else math.nan,
            norm_passes=_norm_passes(self.stream.norms, self.watcher.values, gradients),
        )

    def _step(
        self, step: StreamStep, gradients: Mapping[int, Tensor | None], skip: Mapping[int, Tensor | None]
    ) -> StepFlow:
        values = self.watcher.values
        before, after = values[step.before], values[step.after]
        old, new = self.layouts.of(step.before), self.layouts.of(step.after)
        return StepFlow(
            layer=step.layer,
            name=step.name,
            rms_before=rms(before),
            rms_after=rms(after),
            branch_rms=_size(values, step.branch, step.total),
            skip_rms=_size(values, step.skip, step.total),
            gradient=self._length(gradients, step.place),
            skip_gradient=self._skip_length(skip, step.place, step.layer),
            token_cosine=math.nan if new is None else token_cosine(new(after)),
            step_cosine=math.nan if old is None or new is None else step_cosine(old(before), new(after)),
            largest=after.abs().max().item(),
        )

    def _length(self, gradients: Mapping[int, Tensor | None], node: int) -> float:
        return length(gradients[node]) if node in gradients else math.nan

    def _skip_length(self, gradients: Mapping[int, Tensor | None], node: int, layer: int) -> float:
        """Of a gradient that came from above a layer: nan where a sublayer there could not be held."""
        unknown = any(other >= layer for other in self.stream.unknown)
        unknown |= self.stream.unknown_beyond or bool(self.watcher.unheld)
        return math.nan if unknown else self._length(gradients, node)

    def _weight(self, name: str, parameter: Tensor, gradients: Mapping[str, Tensor | None]) -> WeightFlow:
        gradient = None if name in self.frozen else gradients.get(name)
        return WeightFlow(name=name, norm=length(parameter.detach()), gradient=length(gradient))


def _probed(output: Any, seed: int, probe: str, loss: Callable[[Any], Tensor] | None) -> tuple[Tensor, list[Tensor]]:
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


# ---- sizes


def _total(values: Mapping[int, Tensor], terms: Sequence[Term], like: int) -> Tensor | None:
    """The sum of some terms, in double precision and in the shape of their sum; None where they have another layout."""
    if not terms:
        return None
    shape = values[like if like >= 0 else terms[0][1]].shape
    result = torch.zeros(shape, dtype=torch.float64, device=values[terms[0][1]].device)
    for sign, node in terms:
        term = values[node].double()
        if term.numel() == result.numel() and term.shape != shape:
            term = term.reshape(shape)
        try:
            result = result + sign * term.expand(shape)
        except RuntimeError:
            return None
    return result


def _size(values: Mapping[int, Tensor], terms: Sequence[Term], like: int) -> float:
    """RMS of a sum of terms; 0 where there are none, nan where they cannot be added here."""
    total = _total(values, terms, like)
    return rms(total) if total is not None else math.nan if terms else 0.0


def _identity(values: Mapping[int, Tensor], step: StreamStep) -> float:
    """How far the residual sum is from a * before + branch, relative to the largest number in it."""
    if step.total < 0:
        return 0.0
    after = values[step.total].double()
    branch, carried = (_total(values, terms, step.total) for terms in (step.branch, step.carried))
    if (step.branch and branch is None) or (step.carried and carried is None):
        return math.inf
    parts = [part for part in (branch, carried) if part is not None]
    largest = after.abs().max().item()
    return (after - sum(parts[1:], parts[0])).abs().max().item() / largest if largest else 0.0


def _norm_passes(
    norms: Sequence[LastNorm], values: Mapping[int, Tensor], gradients: Mapping[int, Tensor | None]
) -> float:
    """Share of the gradient behind the last norm that its Jacobian lets through, a projection; nan without a norm.

    The first norm that any gradient comes to is the last one before the probe.
    """
    for norm in norms:
        below, above = gradients.get(norm.source), gradients.get(norm.node)
        if below is None or above is None or norm.name not in NORMS:
            continue
        x = values[norm.source].double()
        arriving = above if norm.gain < 0 else above * values[norm.gain]
        centred = x - x.mean(dim=-1, keepdim=True) if norm.name == "layernorm" else x
        square = centred.square()
        if norm.name == "l2norm":
            size = square.sum(-1, keepdim=True) + norm.eps**2
        else:
            size = square.mean(-1, keepdim=True) + norm.eps
        total = length(arriving)
        return length(below * size.sqrt()) / total if total else math.nan
    return math.nan
