"""A model on its way from one formula to another: what it computes between the two, and where on the way it is.

At the share t of the way what a sublayer is given, and the stream after it, are (1 - t) old + t new of what the two
formulas say. At both ends one of the two is computed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def begin(module: nn.Module) -> None:
    """Make a module one that moves, at the start of the way."""
    share = torch.zeros((), device=next((one.device for one in module.parameters()), None))
    module.register_buffer("_share", share, persistent=False)
    module._stage = "start"  # type: ignore[assignment]


def go(model: nn.Module, share: float) -> None:
    """Take a model to this share of the way, from 0 to 1."""
    for module in _moving(model):
        module._share.fill_(share)
        module._stage = "start" if share == 0 else "end" if share == 1 else "between"


def is_moving(model: nn.Module) -> bool:
    """Whether a model was made to move; at its ends, too."""
    return any(True for _ in _moving(model))


def blended(module: Any, old: Callable[[], Tensor], new: Callable[[], Tensor]) -> Tensor:
    """The value where a module is on its way between two."""
    if module._stage == "start":
        return old()
    if module._stage == "end":
        return new()
    before, after = old(), new()
    kind = torch.promote_types(before.dtype, after.dtype)
    # not written as a sum: a mode that follows the stream would take it for one with a sublayer's output
    return torch.lerp(before.to(kind), after.to(kind), module._share.to(kind))


def carry(old: nn.Module, new: nn.Module) -> None:
    """Give a model the values that another one has under the same names, on its devices, in its types and modes."""
    values = dict(old.named_parameters(remove_duplicate=False)) | dict(old.named_buffers(remove_duplicate=False))
    for name, one in (*new.named_parameters(), *new.named_buffers()):
        if name in values:
            one.data = values[name].detach().clone()
            one.requires_grad_(values[name].requires_grad)
    set_modes(old, new)


def set_modes(old: nn.Module, new: nn.Module) -> None:
    """Let each module train or not as that of the same name does in another model; others as that model."""
    modules = dict(old.named_modules())
    for name, module in new.named_modules():
        module.training = modules.get(name, old).training


def _moving(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if "_stage" in module.__dict__)
