"""The proof of a conversion: two models on one example in float64, with random gains and biases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from normula.torch.capture.nested import tensors

SEED: Final = 11

SPREAD: Final = 0.3
"""Of the numbers that are added to each vector."""


@torch.no_grad()
def randomised(model: nn.Module, fixed: Collection[str] = ()) -> nn.Module:
    """A copy in float64, with a random number added to each element of its vectors: gains, biases, factors.

    Matrices that are 0, as heads and output projections are before a training, get random numbers too: behind one that
    is 0, no change would be seen.

    Args:
        model: to copy.
        fixed: parameters that stay.
    """
    new = deepcopy(model).double()
    generator = torch.Generator().manual_seed(SEED)
    for name, one in new.named_parameters():
        is_vector = one.dim() <= 1 and name not in fixed
        if is_vector or (one.dim() > 1 and not one.any()):
            one.add_(SPREAD * torch.randn(one.shape, generator=generator, dtype=one.dtype).to(one.device))
    return new


def wide(value: Any) -> Any:
    """Example arguments with floating-point tensors in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: wide(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(wide(one) for one in value)
    return value


class InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, what a model's code says is in float32 or narrower is in float64, as some write for their norms."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in (torch.float32, torch.bfloat16, torch.float16):
            kwargs["dtype"] = torch.float64
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:
            return _grouped(*args, **kwargs)
        return func(*args, **kwargs)


def _grouped(rows: Tensor, matrices: Tensor, ends: Tensor, *_: Any, **__: Any) -> Tensor:
    """Each group of rows times a matrix of its own, as mixtures of experts do; PyTorch has no such in float64."""
    starts = [0, *ends.tolist()]
    groups = [rows[start:end] @ one for start, end, one in zip(starts, ends.tolist(), matrices, strict=False)]
    return torch.cat([*groups, rows.new_zeros(len(rows) - starts[-1], matrices.shape[-1])])


def apart(old: nn.Module, new: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The largest difference of the outputs over the largest output, in evaluation mode; inf where shapes differ."""
    before, after = outputs(old, args, kwargs), outputs(new, args, kwargs)
    if [one.shape for one in before] != [one.shape for one in after] or not before:
        return float("inf")
    change = max(float((one - other).abs().max()) for one, other in zip(before, after, strict=True))
    return change / max(float(one.abs().max()) for one in before)


@torch.no_grad()
def outputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """What a model returns: without PyTorch's fused path, which would not see another placement."""
    modes = [(module, module.training) for module in model.modules()]
    fast, dtype = torch.backends.mha.get_fastpath_enabled(), torch.get_default_dtype()
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():  # type: ignore[no-untyped-call]
            result = model(*args, **kwargs)
    finally:
        torch.set_default_dtype(dtype)
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes:
            module.training = mode
    return [one for one in tensors(result) if one.is_floating_point()]
