"""What a rewiring preserves, found by running both models: their function, that at initialisation only, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from normula.record.rewiring import Operation, Preserved
from normula.torch.capture import placed
from normula.torch.capture.nested import tensors
from normula.torch.capture.scope import generic, undisturbed
from normula.torch.rewire.fresh import fresh

SEED: Final = 7

EXACT: Final = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Relative change of the outputs up to which two models are the same, by rounding; a half-precision model's is 1e-2."""

Values = Mapping[str, Tensor]


def preserved(
    old: nn.Module, new: nn.Module, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Preserved, float]:
    """What stays of a model, and how far the outputs on the example are from what they were.

    Three comparisons: at the model's own weights; with random gains and biases, the same in both; with the gains of all
    norms on the stream at 1 and their biases at 0.

    Returns:
        What stays; and the root mean square of the change over that of the old outputs, at the model's own weights.
    """
    change = _change(old, new, operation, args, kwargs, {})
    exact = EXACT.get(next((one.dtype for one in old.parameters() if one.is_floating_point()), torch.float32), 1e-2)
    if _change(old, new, operation, args, kwargs, _random(old)) < exact:
        return "function", change
    if _change(old, new, operation, args, kwargs, _initial(old, operation)) < exact:
        return "function at initialisation", change
    return "parameters", change


def _change(
    old: nn.Module,
    new: nn.Module,
    operation: Operation,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Values,
) -> float:
    """The change of the outputs with some parameters at other values in both models."""
    before = _outputs(old, args, kwargs, values)
    after = _outputs(new, args, kwargs, _in_new(new, operation, values))
    if [one.shape for one in before] != [one.shape for one in after]:
        return float("inf")
    pairs = list(zip(before, after, strict=True))
    change = sum(float((one.double() - other.double()).square().sum()) for one, other in pairs)
    whole = sum(float(one.double().square().sum()) for one in before)
    return float((change / whole) ** 0.5) if whole else 0.0 if change == 0 else float("inf")


def _in_new(new: nn.Module, operation: Operation, values: Values) -> dict[str, Tensor]:
    """The values under the names that they have in the new model; copies of a norm have those of the norm."""
    names = {name for name, _ in new.named_parameters()}
    found = {name: value for name, value in values.items() if name in names}
    for one in operation.norms:
        if one.copied:
            for name in names:
                source = f"{one.like}.{name.removeprefix(one.path)[1:]}"
                if name.startswith(f"{one.path}.") and source in values:
                    found[name] = values[source]
    return found


def _random(model: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    drawn = ((name, one, generic(one, generator)) for name, one in model.named_parameters())
    return {name: value.to(one) for name, one, value in drawn if value is not None}


def _initial(model: nn.Module, operation: Operation) -> dict[str, Tensor]:
    """Gain 1 and bias 0 for the norms that the operation has to do with."""
    found: dict[str, Tensor] = {}
    for norm in operation.bare:
        found |= {f"{norm.path}.{name}": one.detach() for name, one in fresh(norm, model).named_parameters()}
    return found


def _outputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], values: Values) -> list[Tensor]:
    with undisturbed(model, SEED, generic=False):
        given = placed(model, tuple(args)), placed(model, dict(kwargs))
        result = functional_call(model, dict(values), *given, tie_weights=False)  # a name for each tensor is given
    return [one for one in tensors(result) if one.is_floating_point()]
