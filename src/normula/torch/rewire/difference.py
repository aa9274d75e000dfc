"""How far the outputs of two models are from one another on one example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from normula.torch.capture.nested import tensors
from normula.torch.capture.scope import undisturbed

SEED: Final = 7

Weights = Literal["own", "random", "initial"]
"""A model's own weights; random gains and biases, the same in both; or gains 1 and biases 0 of all norms."""


def difference(
    old: nn.Module, new: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shared: Mapping[str, str]
) -> float:
    """The root mean square of the change of the outputs over that of the old ones, in evaluation mode.

    Args:
        old, new: the models.
        args, kwargs: of both.
        shared: parameters of the new model that have the values of others of the old one, by name.
    """
    with torch.no_grad():
        before, after = _outputs(old, args, kwargs), _outputs(new, args, kwargs)
    if [one.shape for one in before] != [one.shape for one in after]:
        return float("inf")
    change = sum(float((one.double() - other.double()).square().sum()) for one, other in zip(before, after, strict=True))
    whole = sum(float(one.double().square().sum()) for one in before)
    return (change / whole) ** 0.5 if whole else float("inf") if change else 0.0


def _outputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    modes = [(module, module.training) for module in model.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            result = model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes:
            module.training = mode
    return [one for one in tensors(result) if one.is_floating_point()]
