"""A forward pass that leaves a model as it was: mode, random state, parameters, buffers, whatever happens inside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def undisturbed(model: nn.Module, seed: int, *, generic: bool = True) -> Iterator[None]:
    """Inside: evaluation mode, no gradients, no fused fast path, a random state of its own, generic parameters.

    A parameter that holds one value everywhere, or is a vector, is what it is at the start of training; there
    placements agree that later do not (a branch of zeros, a gain of ones). It is drawn at random inside, unless the
    parameters should be used as they are (`generic` is false).
    """
    held = [(module, attributes(module)) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]
    states = random.getstate(), np.random.get_state()
    fast = torch.backends.mha.get_fastpath_enabled()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    drawn: list[tuple[Tensor, Tensor]] = []
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=devices):
        try:
            for module in model.modules():
                module.training = False
            torch.backends.mha.set_fastpath_enabled(False)
            if generic:
                _draw(model, seed, drawn)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            for module, before in held:
                restore(module, before)
            for tensor, value in (*drawn, *buffers):
                tensor.data.copy_(value)
            torch.backends.mha.set_fastpath_enabled(fast)
            random.setstate(states[0])
            np.random.set_state(states[1])


def attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds: its attributes, with its tables of tensors and modules as they are now."""
    return {name: copy(value) if name in _TABLES else value for name, value in module.__dict__.items()}


def restore(module: nn.Module, before: dict[str, Any]) -> None:
    """Give a module the attributes that it had; those that its forward left behind go."""
    for name in [name for name in module.__dict__ if name not in before]:
        del module.__dict__[name]
    for name, value in before.items():
        if name in _TABLES:
            table = module.__dict__[name]
            table.clear()
            table.update(value)
        else:
            module.__dict__[name] = value


_TABLES = ("_parameters", "_buffers", "_modules")


def _draw(model: nn.Module, seed: int, drawn: list[tuple[Tensor, Tensor]]) -> None:
    """Draw the parameters that are not generic; each goes to `drawn` with what it was before it is changed."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if (value := generic(parameter, generator)) is not None:
            drawn.append((parameter, parameter.detach().clone()))
            parameter.data.copy_(value)


def generic(parameter: Tensor, generator: torch.Generator) -> Tensor | None:
    """A generic value for a parameter that has none; None for one that has."""
    if parameter.is_meta or not parameter.is_floating_point() or not parameter.numel() or not _is_special(parameter):
        return None
    noise = torch.rand(parameter.shape, generator=generator) - 0.5
    other = torch.rand(parameter.shape, generator=generator) - 0.5
    return parameter.detach().float().cpu() * (1 + noise) + other * _spread(parameter)


def _is_special(parameter: Tensor) -> bool:
    if parameter.dim() <= 1:
        return True
    first = parameter.detach().flatten()[:64]
    if not bool((first == first[0]).all()):  # most are not, and a large one need not be looked through
        return False
    low, high = parameter.detach().aminmax()
    return bool(low == high)


def _spread(parameter: Tensor) -> float:
    """How far a drawn value may be from the one it had: for a matrix, so that its products keep their input's size."""
    return 0.6 if parameter.dim() <= 1 else 2 / max(parameter.shape[-1], 1) ** 0.5
