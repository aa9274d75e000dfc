"""A model that was built from a spec, built again with another placement and its weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from normula.formula import Placement
from normula.torch.build import build
from normula.torch.model import Model
from normula.torch.norms import Norm


def is_own(model: nn.Module) -> bool:
    """Whether a model was built from a spec."""
    return isinstance(model, Model)


def rebuilt(model: Model, placement: Placement) -> Model:
    """The same spec with another placement; what has the same name has the same values.

    Raises:
        ValueError: norms of the model have several epsilons, for which a spec has no place.
    """
    eps = {one.eps for one in model.modules() if isinstance(one, Norm)}
    if len(eps) > 1:
        said = ", ".join(f"{one:g}" for one in sorted(eps))
        raise ValueError(f"A spec has one epsilon, and the norms of this model are to have {said}.")
    spec = replace(model.spec, placement=placement, embed=None, final=None, eps=eps.pop() if eps else model.spec.eps)
    new = build(spec)
    anchor = next(model.parameters())
    new = new.to(device=anchor.device, dtype=anchor.dtype).train(model.training)
    old = dict(model.named_parameters())
    with torch.no_grad():
        for name, one in new.named_parameters():
            if name in old:
                one.copy_(old[name])
                one.requires_grad_(old[name].requires_grad)
    return new
