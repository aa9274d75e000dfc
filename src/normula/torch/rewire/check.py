"""Models whose modules cannot be rewired, whatever their formula: quantised, sharded, compiled, wrapped."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from normula.torch.rewire.move import is_moving

WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def check(model: Any) -> None:
    """A model must be an ordinary module with whole parameters of floating-point numbers.

    Raises:
        ValueError: it is not; the message names the part.
    """
    if isinstance(model, torch.export.ExportedProgram):
        raise ValueError("An exported program is one fixed graph without modules; rewire the model that it came from.")
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "A compiled model keeps the code that it was compiled from; rewire the model, then compile it."
        )
    if is_moving(model):
        raise ValueError(
            "This model is on its way from one placement to another, and computes something between the two; rewire "
            "what finished() returns."
        )
    for path, module in model.named_modules():
        if type(module).__name__ in WRAPPERS:
            raise ValueError(
                f"{path or 'This model'} is wrapped in {type(module).__name__}; rewire the module inside, then wrap it."
            )
        if "quantized" in type(module).__module__:
            raise ValueError(_quantised(path, type(module).__name__))
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "full_tensor"):
            raise ValueError(
                f"{name} is sharded (a DTensor); rewire the model while its parameters are whole, then shard it."
            )
        if type(parameter) not in PLAIN or not (parameter.is_floating_point() or parameter.is_complex()):
            raise ValueError(_quantised(name, type(parameter).__name__, str(parameter.dtype)))


def _quantised(name: str, kind: str, dtype: str = "") -> str:
    return (
        f"{name} is quantised ({kind}{f' of {dtype}' if dtype else ''}), to a rounding that fits one placement. "
        "Rewire the model in floating point, then quantise it."
    )
