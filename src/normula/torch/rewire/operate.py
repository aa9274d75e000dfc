"""The operation itself, on a copy of the model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from normula.record.rewiring import NewGain, Operation, Script
from normula.torch.capture import placed
from normula.torch.capture.scope import undisturbed
from normula.torch.norms import norm as own_norm
from normula.torch.rewire.difference import SEED
from normula.torch.rewire.fresh import fresh
from normula.torch.rewire.move import begin
from normula.torch.rewire.swapped import Absent, depth, swap


def operated(model: nn.Module, operation: Operation) -> nn.Module:
    """A copy of a model, with what is in an operation done to it; the model stays as it was.

    Raises:
        ValueError: a norm that new ones are to be like has no values with gain 1 and bias 0.
    """
    new = deepcopy(model)
    made = {one.path: fresh(one, model) for one in operation.norms}
    gains = {one.path: _gain(one, model) for one in operation.gains}
    for path, module in made.items():
        parent, name = _parent(new, path)
        setattr(parent, name, module.train(parent.training))
    for path, gain in gains.items():
        parent, name = _parent(new, path)
        parent.register_parameter(name, gain)
    for path, stays in operation.passing:
        _let_pass(new, path, stays, removed=path in operation.removed)
    for path, comes in operation.fading:
        norm = new.get_submodule(path)
        swap(norm, "fading", _comes=comes)
        begin(norm)
    for script in operation.scripts:
        _step(new, script)
    for name in operation.unused:
        new.get_parameter(name).requires_grad_(False)
    _without_fast_path(new, operation)
    return new


def counted(model: nn.Module, operation: Operation) -> tuple[dict[str, int], dict[str, int]]:
    """The parameters that an operation adds and removes, each with its number of elements."""
    added: dict[str, int] = {}
    for norm in operation.norms:
        made = model.get_submodule(norm.like) if norm.like else own_norm(norm.kind, norm.width, norm.eps)
        added |= {f"{norm.path}.{name}": one.numel() for name, one in made.named_parameters()}
    added |= {gain.path: max(gain.width, 1) for gain in operation.gains}
    removed = {
        f"{path}.{name}": one.numel()
        for path in operation.removed
        for name, one in model.get_submodule(path).named_parameters()
    }
    return added, removed


def arguments(
    model: nn.Module, paths: Mapping[str, Sequence[tuple[int, ...]]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, tuple[str, int]]:
    """For the paths of modules, the argument that a stream of these shapes comes in: its name and its place.

    Modules that get no such argument are left out.
    """
    found: dict[str, tuple[str, int]] = {}
    hooks = []
    for path, shapes in paths.items():
        module = model.get_submodule(path)

        def look(module: nn.Module, args: Any, kwargs: Any, path: str = path, shapes: Any = shapes) -> None:
            place = _argument(module, args, kwargs, shapes)
            if place is not None:
                found.setdefault(path, place)

        hooks.append(module.register_forward_pre_hook(look, with_kwargs=True))
    try:
        with undisturbed(model, SEED, generic=False):
            model(*placed(model, tuple(args)), **placed(model, dict(kwargs)))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def slots(model: nn.Module, paths: Sequence[str]) -> dict[str, str]:
    """For the paths of last layers, the place for a closing norm that PyTorch's own stack has and leaves empty."""
    kinds = (nn.TransformerEncoder, nn.TransformerDecoder)
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, kinds) and module.norm is None:
            last = f"{path}.layers.{len(module.layers) - 1}".lstrip(".")
            if last in paths:
                found[last] = f"{path}.norm".lstrip(".")
    return found


def _argument(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[str, int] | None:
    names = [
        name
        for name, one in inspect.signature(module.forward).parameters.items()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    given = [(names[place] if place < len(names) else "", place, one) for place, one in enumerate(args)]
    given += [(name, names.index(name) if name in names else len(names), one) for name, one in kwargs.items()]
    sizes, widths = [math.prod(shape) for shape in shapes], [shape[-1] for shape in shapes if shape]
    tests: tuple[Callable[[Tensor], bool], ...] = (
        lambda one: tuple(one.shape) in shapes,
        lambda one: one.numel() in sizes,
        lambda one: one.dim() > 1 and one.shape[-1] in widths,
    )
    for fits in tests:
        for name, place, one in given:
            if isinstance(one, Tensor) and one.is_floating_point() and fits(one):
                return name, place
    return None


def _parent(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    above, _, name = path.rpartition(".")
    return model.get_submodule(above), name


def _gain(new: NewGain, model: nn.Module) -> nn.Parameter:
    anchor = next((one for one in model.parameters() if one.is_floating_point()), torch.zeros(()))
    shape = (new.width, *(1 for _ in range(-1 - new.axis))) if new.width else ()
    return nn.Parameter(torch.full(shape, new.start, device=anchor.device, dtype=anchor.dtype))


def _let_pass(model: nn.Module, path: str, stays: bool, *, removed: bool) -> None:
    """Let a norm pass what the model's own code gives it."""
    parent, name = _parent(model, path)
    if removed:
        setattr(parent, name, Absent(stays, model.get_submodule(path)))
        return
    module = model.get_submodule(path)
    passes = dict(getattr(module, "_passes", {}))
    swap(module, "passing", _passes={**passes, len(passes): stays})


def _step(model: nn.Module, script: Script) -> None:
    """Give a module's layers their formulas, and watch the sublayers that run beside one another."""
    module = model.get_submodule(script.path)
    swap(module, "stepping", _scripts=(*getattr(module, "_scripts", ()), script))
    if script.moves:
        begin(module)
    if script.begins:
        swap(module.get_submodule(script.begins), "beginning")
    for place, branch in enumerate(script.branches):
        if branch.path:
            sublayer = module.get_submodule(branch.path)
            if not depth(type(sublayer), "watched"):
                swap(sublayer, "watched", _place=place)


def _without_fast_path(model: nn.Module, operation: Operation) -> None:
    """PyTorch's encoder must not skip its layers' forward."""
    paths = [script.path for script in operation.scripts]
    for path, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder) and any(one.startswith(path) for one in paths):
            module.enable_nested_tensor = module.use_nested_tensor = False
        if isinstance(module, nn.TransformerEncoderLayer) and path in paths:
            module.activation_relu_or_gelu = 0
