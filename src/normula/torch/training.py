"""What training would do to a model's parameters: which of them it reaches, and which its optimizer pulls towards 0."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from normula.torch.capture import Model, module_of
from normula.torch.observed import probed_output
from normula.torch.watch import as_it_is, changed, own


def reached(
    model: Model,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    draws: int,
    probe: str,
    loss: Callable[[Any], Any] | None,
) -> dict[str, int]:
    """For each parameter, in how many of some passes in training mode a gradient came to it; each draws anew.

    The model is as it was afterwards, its running statistics included.

    Raises:
        ValueError: there is nothing to differentiate.
        Exception: whatever the forward raises.
    """
    module = module_of(model)
    found = {name: 0 for name, one in module.named_parameters() if one.requires_grad}
    with as_it_is(module):
        parameters = [one for name, one in module.named_parameters() if name in found]
        module.train()
        for draw in range(draws):
            torch.manual_seed(draw)
            random.seed(draw)
            np.random.seed(draw)
            output = module(*changed(tuple(args), own), **changed(dict(kwargs), own))
            value, _ = probed_output(output, draw, probe, loss)
            gradients = torch.autograd.grad(value, parameters, allow_unused=True)
            for name, gradient in zip(found, gradients, strict=True):
                found[name] += gradient is not None
    return found


def decays(model: Model, optimizer: Any) -> dict[str, float]:
    """The weight decay that an optimizer has for each parameter of a model that it trains.

    Raises:
        ValueError: it is no optimizer of torch.
    """
    groups = getattr(optimizer, "param_groups", None)
    if groups is None:
        raise ValueError(
            f"An optimizer has param_groups, as those of torch.optim have; a {type(optimizer).__name__} has none."
        )
    of = {id(one): float(group.get("weight_decay") or 0.0) for group in groups for one in group["params"]}
    named = nn.Module.named_parameters(module_of(model), remove_duplicate=False)
    return {name: of[id(one)] for name, one in named if id(one) in of}
