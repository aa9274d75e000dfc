"""Weights drawn anew by a named rule, from a seed; the draws are those of our own models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from normula.oracle.initial import draw
from normula.record.rewiring import Initial, NewNorm
from normula.torch.rewire.fresh import fresh


def reinitialise(model: nn.Module, initials: Sequence[Initial], norms: Sequence[NewNorm], seed: int) -> tuple[str, ...]:
    """Draw the parameters of a model anew, in place; norms start at gain 1 and bias 0.

    Args:
        model: changed in place.
        initials: how each parameter starts that the rule speaks of.
        norms: those of the model, as new ones at their place would be.
        seed: of all draws.

    Returns:
        The names of the parameters that no rule speaks of; they keep their values.
    """
    held = dict(model.named_parameters(remove_duplicate=False))
    told: set[int] = set()
    with torch.no_grad():
        for one in initials:
            if (parameter := held.get(one.name)) is None:
                continue
            shape = tuple(reversed(parameter.shape)) if one.transposed else tuple(parameter.shape)
            value = draw(
                one.name,
                one.role,
                shape,
                rule=one.rule,
                seed=seed,
                sublayers_total=one.sublayers,
                factor=one.factor,
            )
            drawn = torch.from_numpy(value.T.copy() if one.transposed else value)
            parameter.copy_(drawn)
            told.add(id(parameter))
        for norm in norms:
            made = fresh(norm, model) if norm.path and norm.path in dict(model.named_modules()) else None
            for name, start in made.named_parameters() if made is not None else ():
                parameter = held[f"{norm.path}.{name}"]
                parameter.copy_(start)
                told.add(id(parameter))
    return tuple(name for name, one in model.named_parameters() if id(one) not in told)
