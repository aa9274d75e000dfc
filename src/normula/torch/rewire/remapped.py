"""An optimizer of a model, for the model that was made of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn


def remapped(
    optimizer: torch.optim.Optimizer, old: nn.Module, new: nn.Module, copied: Mapping[str, str]
) -> torch.optim.Optimizer:
    """An optimizer of the same class over the new model's parameters, with the state of those that stayed.

    Args:
        optimizer: over parameters of the old model.
        old, new: models; a parameter that stayed has the same name in both.
        copied: modules of the new model that are copies, by path, and the path of what each is a copy of.

    Raises:
        ValueError: the optimizer has parameters that are none of the old model.
    """
    before, after = dict(old.named_parameters()), dict(new.named_parameters())
    origins = {name: _origin(name, copied) for name in after}
    places = {id(one): name for name, one in before.items()}
    if any(id(one) not in places for group in optimizer.param_groups for one in group["params"]):
        raise ValueError("The optimizer has parameters that are none of the model; pass the model that it trains.")
    trained = {
        places[id(one)]: number for number, group in enumerate(optimizer.param_groups) for one in group["params"]
    }
    members: list[list[str]] = [[] for _ in optimizer.param_groups]
    home = _group_of_vectors(optimizer)
    for name, parameter in after.items():
        origin = origins[name]
        if origin in trained:
            members[trained[origin]].append(name)
        elif origin not in before and parameter.requires_grad:
            members[home].append(name)
    groups = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": [after[name] for name in names]}
        for group, names in zip(optimizer.param_groups, members, strict=True)
    ]
    kind: Any = type(optimizer)
    made: torch.optim.Optimizer = kind(groups, **_taken(kind, optimizer.defaults))
    for name, parameter in after.items():
        state = optimizer.state.get(before[origins[name]]) if origins[name] in before else None
        if state and after[name].shape == before[origins[name]].shape:
            made.state[parameter] = deepcopy(state)
    return made


def _origin(name: str, copied: Mapping[str, str]) -> str:
    """What a parameter was before: itself, or what its module is a copy of."""
    path, _, last = name.rpartition(".")
    return f"{copied[path]}.{last}" if path in copied else name


def _group_of_vectors(optimizer: torch.optim.Optimizer) -> int:
    """The group that new norms belong to: the one in which most parameters are vectors, as norms are."""
    shares = [
        sum(one.ndim < 2 for one in group["params"]) / max(len(group["params"]), 1) for group in optimizer.param_groups
    ]
    return shares.index(max(shares))


def _taken(kind: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a class is made with."""
    return {name: value for name, value in defaults.items() if name in inspect.signature(kind).parameters}
