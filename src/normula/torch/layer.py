"""Steps of a plan as one straight-line graph: what runs is the formula, read once.

`print(model.layers[0].code)` shows a layer as the Python that it became.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.proxy import GraphAppendingTracer

from normula.formula.run import Functions, Runner
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS
from normula.spec import Plan, Spec, Step
from normula.spec.operators import operator
from normula.spec.plan import norm_kind
from normula.torch.attention import Attention
from normula.torch.mlp import MLP, Experts
from normula.torch.norms import norm
from normula.torch.operators import FORMS

Factory = Callable[[int], nn.Module]

FUNCTIONS: Functions = {
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "ramp": lambda z: torch.clamp(z, 0.0, 1.0),
}


def part(plan: Plan, steps: Sequence[Step], root: str, modules: Mapping[str, Factory]) -> fx.GraphModule:
    """One part of the network (a layer, the start, the end) from its steps.

    The module takes x and the other streams, then the context of attention; it returns the streams.

    Args:
        plan: the whole network.
        steps: what runs, in order.
        root: the name under which the part lives, such as `layers.3`.
        modules: makers of the sublayers that are not built from the spec.
    """
    parts = {path.removeprefix(f"{root}."): module for path, module in _modules(plan.spec, steps, modules).items()}
    holder = _tree_of(parts)
    graph = fx.Graph()
    tracer = GraphAppendingTracer(graph)
    names = ["x", *(name for name, _ in plan.starts)]
    streams: dict[str, Any] = {name: fx.Proxy(graph.placeholder(name), tracer) for name in names}
    context = graph.placeholder("context")

    for step in steps:

        def call(what: Call, value: Any, step: Step = step) -> Any:
            if what.word == "stop":
                return value.detach()
            path = step.path(what.index).removeprefix(f"{root}.")
            attends = isinstance(parts[path], Attention)
            return fx.Proxy(graph.call_module(path, (value.node, context) if attends else (value.node,)), tracer)

        def gain(what: Gain, step: Step = step) -> Any:
            return fx.Proxy(graph.get_attr(step.path(what.index).removeprefix(f"{root}.")), tracer)

        own = {part: path.removeprefix(f"{root}.") for part, path in _operator_paths(plan.spec, step).items()}

        def around(part: str, *values: Any, own: dict[str, str] = own) -> Any:
            """A part of a registered operator, where there is one."""
            return fx.Proxy(graph.call_module(own[part], tuple(value.node for value in values)), tracer)

        state = streams["x"]
        if "read" in own:
            streams = {"x": around("read", state)}
        symbols = {
            **step.symbols,
            "step": fx.Proxy(context, tracer).training_step if "step" in step.formula.symbols else 0.0,
        }
        streams = Runner(symbols, call, gain, FUNCTIONS).run(step.formula.tree, streams)
        if "write" in own:
            streams = {"x": around("write", state, streams["x"])}
        if "begin" in own:
            streams = {"x": around("begin", streams["x"])}

    graph.output(tuple(streams[name].node for name in names))
    graph.lint()
    return fx.GraphModule(holder, graph, class_name="Part")


def _modules(spec: Spec, steps: Sequence[Step], modules: Mapping[str, Factory]) -> dict[str, nn.Module | nn.Parameter]:
    """The module of every norm and sublayer, and the parameter of every gain, by path."""
    found: dict[str, nn.Module | nn.Parameter] = {}
    for step in steps:
        for what in step.formula.calls:
            path = step.path(what.index)
            if what.word in NORMS:
                found[path] = norm(norm_kind(spec, what.word), spec.width, spec.eps, spec.variance)
            elif step.kind(what) in modules:
                with torch.device("cpu"):  # the rest is made without storage, a user's module is made as it is
                    found[path] = _made(modules[step.kind(what)], step)
            else:
                found[path] = _sublayer(spec, step, what)
        for part, path in _operator_paths(spec, step).items():
            found[path] = _operator_part(spec, step, part)
        for gain in step.formula.gains:
            found[step.path(gain.index)] = nn.Parameter(torch.empty(spec.width if gain.channel else ()))
    return found


def _operator_paths(spec: Spec, step: Step) -> dict[str, str]:
    """Where the parts of a registered operator live around a step: begin, read (the end is a reading too), write."""
    if spec.placed.operator is None:
        return {}
    parts = {"embed": ("begin",), "final": ("read",)}.get(step.prefix, ("read", "write"))
    return {part: f"{step.prefix}.{part}" for part in parts}


def _operator_part(spec: Spec, step: Step, part: str) -> nn.Module:
    name = str(spec.placed.operator)
    data, form = operator(name), FORMS[name]
    if part == "begin":
        return form.begin({})
    if step.prefix == "final":
        return form.end(data.end(spec.width))
    number = int(step.symbols["s"]) - 1
    if part == "read":
        return form.read(data.read(spec.width, number))
    return form.write(data.write(spec.width, number))


def _sublayer(spec: Spec, step: Step, what: Call) -> nn.Module:
    """A sublayer that the spec says all about."""
    kind, inner = step.kind(what), step.inner(what)
    if kind in ("attn", "cross"):
        return Attention(spec, inner, step.path(what.index), crosses=kind == "cross")
    return Experts(spec) if kind == "moe" else MLP(spec, inner)


def _made(factory: Factory, step: Step) -> nn.Module:
    module = factory(int(step.symbols["l"]) - 1)
    if not isinstance(module, nn.Module):
        raise ValueError(f"a maker of sublayers returns a torch.nn.Module for each layer, not {type(module).__name__}")
    return module


def _tree_of(parts: Mapping[str, nn.Module | nn.Parameter]) -> nn.Module:
    """One module that holds each part under its dotted path."""
    root = nn.Module()
    for path, what in parts.items():
        *folders, last = path.split(".")
        place = root
        for folder in folders:
            if not hasattr(place, folder):
                place.add_module(folder, nn.Module())
            place = place.get_submodule(folder)
        if isinstance(what, nn.Module):
            place.add_module(last, what)
        else:
            place.register_parameter(last, what)
    return root
