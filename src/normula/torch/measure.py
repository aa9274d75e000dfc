"""What one forward and one backward pass show, step by step: sizes, gradients, the skip path alone.

The model's own modules run under the formula's own statements, in the open, so that every value of the
stream can be kept. Two passes are made: one as it is, and one with every sublayer's output held constant,
whose gradient is the chain of the skip path's derivatives and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normula.formula.open import Open, Terms
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS, STREAM, SUBLAYERS
from normula.record import Pass, StepFlow, WeightFlow
from normula.spec import Step
from normula.spec.plan import ending, point_name
from normula.torch.attention import Attention
from normula.torch.context import Context
from normula.torch.layer import FUNCTIONS
from normula.torch.model import Model
from normula.torch.norms import Norm
from normula.torch.sizes import length, rms, step_cosine, swallowed, token_cosine

Loss = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Point:
    """One step of the stream: its value before and after, what was added to what."""

    layer: int
    name: str
    before: Tensor
    after: Tensor
    branch: Tensor | None
    skip: Tensor | None


@dataclass(slots=True)
class Trace:
    """A forward pass in the open."""

    points: list[Point] = field(default_factory=list)
    last_norm: tuple[Norm, Tensor, Tensor] | None = None


class _Open(Open):
    """Runs one step of a plan with the model's modules, each point into the trace."""

    def __init__(self, model: Model, step: Step, trace: Trace, hold: bool, around: Context) -> None:
        super().__init__({**step.symbols, "step": around.training_step}, self._call, self._gain, FUNCTIONS)
        self.model, self.step, self.trace, self.hold, self.around = model, step, trace, hold, around

    def kept(self, x: Tensor) -> Tensor:
        return _kept(x)

    def point(self, place: int, before: Tensor, after: Tensor, branch: Tensor | None, skip: Tensor | None) -> None:
        layer, name = int(self.step.symbols["l"]), point_name(self.step, place)
        self.trace.points.append(Point(layer, name, before, after, branch, skip))

    def total(self, terms: Terms, held: Mapping[str, Any]) -> Tensor | None:
        with torch.no_grad():
            total: Tensor | None = super().total(terms, held)
            return None if total is None else total.detach()

    def _call(self, what: Call, x: Tensor) -> Tensor:
        if what.word == "stop":
            return x.detach()
        module = self.model.get_submodule(self.step.path(what.index))
        y: Tensor = module(x, self.around) if isinstance(module, Attention) else module(x)
        if what.word in SUBLAYERS and self.hold:
            return y.detach()
        if what.word in NORMS and isinstance(module, Norm):
            self.trace.last_norm = (module, _kept(x), _kept(y))
        return y

    def _gain(self, what: Gain) -> Tensor:
        *folders, last = self.step.path(what.index).split(".")
        gain = getattr(self.model.get_submodule(".".join(folders)), last)
        assert isinstance(gain, Tensor)
        return gain


def measure(
    model: Model,
    inputs: Tensor,
    loss: Loss,
    *,
    seed: int,
    training_step: int = 0,
    mask: Tensor | None = None,
    is_loss: bool = False,
) -> Pass:
    """One pass over the stack, in evaluation mode; the model is left as it was.

    Args:
        model: built by `build`.
        inputs: (B, T, D), or (B, T) ids.
        loss: from the model's output to one number.
        seed, training_step: kept in the record.
        mask: (B, T), true where a token is real.
        is_loss: whether `loss` is a training loss, whose value is kept.
    """
    if model.spec.placed.operator is not None:
        raise ValueError(f"{model.spec.placed.name} holds several streams in an operator; one stream is measured")
    modes = [(module, module.training) for module in model.modules()]
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    model.eval()
    for parameter, _ in before:
        parameter.grad = None
    try:
        with torch.enable_grad():
            start, trace, output, value = _pass(model, inputs, loss, mask, hold=False)
            weights = _weights(model)
            held_start, held_trace, _, _ = _pass(model, inputs, loss, mask, hold=True)
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode
    return Pass(
        seed=seed,
        training_step=training_step,
        loss=value if is_loss else math.nan,
        steps=tuple(_step_flow(p, h) for p, h in zip(trace.points, held_trace.points, strict=True)),
        weights=weights,
        input_gradient=length(start.grad),
        skip_gradient=length(held_start.grad),
        output_gradient=length(output.grad),
        norm_passes=_norm_passes(trace.last_norm),
    )


def _pass(
    model: Model, inputs: Tensor, loss: Loss, mask: Tensor | None, hold: bool
) -> tuple[Tensor, Trace, Tensor, float]:
    """Forward and backward; returns the embedded input and the output with their gradients."""
    start = model.embedded(inputs.detach())  # the caller's input collects no gradient
    start = _kept(start) if start.requires_grad else start.detach().requires_grad_()
    trace = Trace()
    around = model.around(start, mask)

    def run(step: Step, streams: dict[str, Tensor]) -> dict[str, Tensor]:
        return _Open(model, step, trace, hold, around).statements(step.formula.tree, streams)

    streams = {STREAM: _kept(run(model.plan.embed, {STREAM: start})[STREAM])}
    first = streams[STREAM]
    for name, step in model.plan.starts:
        streams[name] = run(step, {STREAM: first})[STREAM]
    for steps in model.plan.layers:
        for step in steps:
            streams = run(step, streams)
    output = _kept(model.read_out(run(model.plan.final, streams)[STREAM], mask))
    if ending(model.plan) is None:
        trace.last_norm = None
    value = loss(output)
    if value.requires_grad:  # with the sublayers held, nothing may be left to differentiate
        torch.autograd.backward(value)
    return start, trace, output, value.item()


def _norm_passes(last: tuple[Norm, Tensor, Tensor] | None) -> float:
    """Share of the gradient behind the last norm that its Jacobian lets through.

    A norm's Jacobian is (1/size) P diag(gain) with a projection P that removes the directions in which the
    output cannot move; the share is |P g| / |g|.
    """
    if last is None or last[0].kind not in ("layernorm", "rmsnorm", "l2norm"):
        return math.nan
    module, x, y = last
    assert x.grad is not None
    assert y.grad is not None
    weight = getattr(module, "weight", None)
    arriving = y.grad if weight is None else y.grad * weight.detach()
    centred = x.detach() - x.detach().mean(dim=-1, keepdim=True) if module.kind == "layernorm" else x.detach()
    square = centred.square()
    size = (square.sum(-1, keepdim=True) if module.kind == "l2norm" else square.mean(-1, keepdim=True)) + module.eps
    total = length(arriving)
    return length(x.grad * size.sqrt()) / total if total else math.nan


def _step_flow(point: Point, held: Point) -> StepFlow:
    before, after = point.before.detach(), point.after.detach()
    return StepFlow(
        layer=point.layer,
        name=point.name,
        rms_before=rms(before),
        rms_after=rms(after),
        branch_rms=0.0 if point.branch is None else rms(point.branch),
        skip_rms=0.0 if point.skip is None else rms(point.skip),
        gradient=length(point.before.grad),
        skip_gradient=length(held.before.grad),
        token_cosine=token_cosine(after),
        centred_cosine=token_cosine(after - after.mean(dim=-1, keepdim=True)),
        step_cosine=step_cosine(before, after),
        largest=after.abs().max().item(),
        swallowed=swallowed(point.branch, point.skip),
    )


def _weights(model: nn.Module) -> tuple[WeightFlow, ...]:
    return tuple(
        WeightFlow(name=name, norm=length(parameter.detach()), gradient=length(parameter.grad))
        for name, parameter in model.named_parameters()
    )


def _kept(x: Tensor) -> Tensor:
    """The value, with its gradient kept when there is one."""
    if x.requires_grad:
        x.retain_grad()
    return x
