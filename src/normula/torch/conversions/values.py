"""Facts about the parameters of a model that conditions of conversions ask for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normula.record.conversion import Vector


class Values:
    """The values of a model's parameters, in float64."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def constant(self, vector: Vector | None, empty: float) -> float | None:
        """The one number that a vector holds; `empty` for no vector, None where its numbers differ."""
        if vector is None:
            return empty
        values = value(self._model, vector)
        return float(values.flatten()[0]) if bool((values == values.flatten()[0]).all()) else None

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two parameters hold the same numbers."""
        _check_there(one, self._model.get_parameter(one))
        return torch.equal(self._model.get_parameter(one), self._model.get_parameter(other))

    def takes_bias(self, path: str) -> bool:
        """Whether a module is a linear map without a bias that can be given one."""
        module = self._model.get_submodule(path)
        return isinstance(module, nn.Linear) and module.bias is None

    def size(self, name: str) -> int:
        """How many numbers a parameter has."""
        return self._model.get_parameter(name).numel()


def value(model: nn.Module, vector: Vector) -> Tensor:
    """A learned vector as a norm uses it, in float64."""
    _check_there(vector.name, model.get_parameter(vector.name))
    return model.get_parameter(vector.name).detach().double() + vector.offset


def check_convertible(model: nn.Module) -> None:
    """Weights are changed by arithmetic, so they must be numbers that are there.

    Raises:
        ValueError: some are quantised, sharded, or on no device.
    """
    for name, one in model.named_parameters():
        kind = type(one.data).__name__
        _check_there(name, one)
        if not one.is_floating_point() or one.is_quantized:
            raise ValueError(f"{name} is quantised ({one.dtype}); convert the model before it is quantised.")
        if kind not in ("Tensor", "Parameter"):
            raise ValueError(f"{name} is a {kind}, of which a part may be elsewhere; convert the whole model first.")


def _check_there(name: str, parameter: Tensor) -> None:
    if parameter.is_meta:
        raise ValueError(f"{name} has no values (it is on the meta device); load the weights first.")
