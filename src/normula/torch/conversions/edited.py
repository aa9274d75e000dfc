"""The edits of a conversion, done to a copy of a model; sums and products are in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normula.record.conversion import (
    Affine,
    AsRMSNorm,
    Carry,
    Centre,
    Edit,
    Epsilon,
    Fold,
    LinearMap,
    Merge,
    Move,
    Own,
    Scale,
    Share,
    Unfold,
    Untie,
    Vector,
)
from normula.torch.conversions.values import value


@torch.no_grad()
def edited(model: nn.Module, edits: Sequence[Edit], source: nn.Module | None = None) -> nn.Module:
    """A copy of a model with its edits; the model stays as it was.

    Args:
        model: to copy.
        edits: in order.
        source: the model that values are moved from; `model` itself if None.

    Raises:
        ValueError: a norm's epsilon is no attribute of its module.
    """
    new = deepcopy(model)
    for edit in edits:
        if isinstance(edit, Move):
            _move(new, edit, model if source is None else source)
        else:
            EDITS[type(edit)](new, edit)
    return new


class RMSNorm(nn.Module):
    """An RMSNorm with a bias: what a LayerNorm is for tokens whose mean is 0. Shapes (..., D) to (..., D)."""

    def __init__(self, weight: nn.Parameter | None, bias: nn.Parameter | None, width: int, eps: float) -> None:
        super().__init__()
        self.weight: nn.Parameter | None
        self.bias: nn.Parameter | None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", bias)
        self.normalized_shape, self.eps = (width,), eps

    def forward(self, x: Tensor) -> Tensor:
        result = F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return result if self.bias is None else result + self.bias

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps:g}"


def _fold(model: nn.Module, edit: Fold) -> None:
    norm = edit.norm
    for one in edit.maps:
        weight = model.get_parameter(one.weight)
        if norm.bias is not None:
            shift = torch.tensordot(weight.double(), value(model, norm.bias), dims=([one.axis], [0]))
            bias = _bias(model, one, weight, shift)
            bias.copy_(bias.double() + shift)
        if norm.gain is not None:
            weight.copy_(_along(weight.double(), value(model, norm.gain), one.axis))
    _set(model, norm.gain, 1.0)
    _set(model, norm.bias, 0.0)


def _bias(model: nn.Module, one: LinearMap, weight: Tensor, shift: Tensor) -> Tensor:
    """The bias of a linear map, which gets one where it has none."""
    if one.bias:
        return model.get_parameter(one.bias)
    module = model.get_submodule(one.path)
    module.bias = nn.Parameter(torch.zeros_like(shift, dtype=weight.dtype))
    return module.bias


def _unfold(model: nn.Module, edit: Unfold) -> None:
    """Columns that are 0 keep gain 1."""
    weights = [(model.get_parameter(one.weight), one.axis) for one in edit.maps]
    squares = sum(weight.double().movedim(axis, 0).flatten(1).square().sum(1) for weight, axis in weights)
    assert isinstance(squares, Tensor)
    assert edit.norm.gain is not None
    gain = (squares / squares.mean()).sqrt() if bool(squares.any()) else torch.ones_like(squares)
    gain = torch.where(gain == 0, 1.0, gain)
    for weight, axis in weights:
        weight.copy_(_along(weight.double(), 1.0 / gain, axis))
    _set(model, edit.norm.gain, value(model, edit.norm.gain) * gain)
    if edit.norm.bias is not None:
        _set(model, edit.norm.bias, value(model, edit.norm.bias) * gain)


def _centre(model: nn.Module, edit: Centre) -> None:
    parameter = model.get_parameter(edit.name)
    wide = parameter.double()
    parameter.copy_(wide - wide.mean(dim=edit.axis, keepdim=True))


def _as_rmsnorm(model: nn.Module, edit: AsRMSNorm) -> None:
    norm, old = edit.norm, model.get_submodule(edit.norm.path)
    gain, bias = (None if vector is None else model.get_parameter(vector.name) for vector in (norm.gain, norm.bias))
    new = RMSNorm(gain, bias, norm.width, norm.eps)
    _replace(model, norm.path, new.train(old.training))


def _untie(model: nn.Module, edit: Untie) -> None:
    path, _, name = edit.name.rpartition(".")
    old = model.get_parameter(edit.name)
    setattr(model.get_submodule(path), name, nn.Parameter(old.clone(), requires_grad=old.requires_grad))
    config: Any = getattr(model, "config", None)
    if getattr(config, "tie_word_embeddings", False):
        config.tie_word_embeddings = False


def _scale(model: nn.Module, edit: Scale) -> None:
    parameter = model.get_parameter(edit.name)
    parameter.copy_(parameter.double() * edit.factor)


def _epsilon(model: nn.Module, edit: Epsilon) -> None:
    _set_eps(model.get_submodule(edit.norm.path), edit.norm, edit.eps)


def _carry(model: nn.Module, edit: Carry) -> None:
    gain = model.get_parameter(edit.gain)
    factor = gain.double()
    for vector in edit.made:
        _set(model, vector, value(model, vector) * factor)
    for one in edit.maps:
        weight = model.get_parameter(one.weight)
        weight.copy_(_along(weight.double(), 1.0 / factor, one.axis))
    gain.fill_(1.0)


def _move(model: nn.Module, edit: Move, source: nn.Module) -> None:
    for target, one in ((edit.target.gain, edit.source.gain), (edit.target.bias, edit.source.bias)):
        if target is not None and one is not None:
            _set(model, target, value(source, one))
    if edit.target.eps != edit.source.eps:
        _set_eps(model.get_submodule(edit.target.path), edit.target, edit.source.eps)


def _share(model: nn.Module, edit: Share) -> None:
    _replace(model, edit.path, model.get_submodule(edit.source))


def _own(model: nn.Module, edit: Own) -> None:
    module = model.get_submodule(edit.path)
    for path, one in list(model.named_modules(remove_duplicate=False)):
        if one is module and path != edit.path:
            _replace(model, path, deepcopy(module))


def _merge(model: nn.Module, edit: Merge) -> None:
    first, second = edit.first, edit.second
    gain = edit.factor if second.gain is None else value(model, second.gain) * edit.factor
    if first.gain is not None:
        _set(model, first.gain, gain)
    if first.bias is not None:
        _set(model, first.bias, 0.0 if second.bias is None else value(model, second.bias))
    _set_eps(model.get_submodule(first.path), first, edit.eps)
    _replace(model, second.path, nn.Identity())


def _along(weight: Tensor, vector: Tensor, axis: int) -> Tensor:
    """A matrix times a number for each place along an axis."""
    shape = [1] * weight.dim()
    shape[axis] = -1
    return weight * vector.reshape(shape)


def _set(model: nn.Module, vector: Vector | None, values: Tensor | float) -> None:
    """Give a learned vector values as a norm uses it."""
    if vector is not None:
        parameter = model.get_parameter(vector.name)
        parameter.copy_((torch.as_tensor(values) - vector.offset).expand_as(parameter))


def _set_eps(module: nn.Module, norm: Affine, eps: float) -> None:
    names = [name for name, one in vars(module).items() if isinstance(one, float) and abs(one - norm.eps) <= 1e-6 * one]
    if len(names) != 1:
        raise ValueError(
            f"The epsilon of {norm.path}, {norm.eps:g}, is to become {eps:g}, and it is no attribute of its module, "
            "or not the only one with that value."
        )
    setattr(module, names[0], eps)


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    above, _, name = path.rpartition(".")
    setattr(model.get_submodule(above), name, module)


EDITS: Final[Mapping[type, Callable[[nn.Module, Any], None]]] = {
    Fold: _fold,
    Unfold: _unfold,
    Centre: _centre,
    AsRMSNorm: _as_rmsnorm,
    Untie: _untie,
    Scale: _scale,
    Epsilon: _epsilon,
    Carry: _carry,
    Share: _share,
    Own: _own,
    Merge: _merge,
}
