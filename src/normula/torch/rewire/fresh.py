"""New norms: made like one that the model has, with gain 1 and bias 0."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Final

import torch
from torch import Tensor, nn

from normula.record.rewiring import NewNorm
from normula.torch.norms import Norm
from normula.torch.norms import norm as own_norm
from normula.torch.rewire.swapped import unswapped

CLOSE: Final = 1e-3
"""Of a new norm to the definition of its kind: norms round to half precision in models of that."""


def fresh(new: NewNorm, model: nn.Module) -> nn.Module:
    """The module of a new norm.

    Raises:
        ValueError: the norm that it is made like does not become the identity gain at any value of its parameters.
    """
    anchor = next((one for one in model.parameters() if one.is_floating_point()), torch.zeros(()))
    if not new.like:
        (axis,) = new.axes
        own = own_norm(new.kind, new.width, new.eps) if axis == -1 else Crosswise(new.kind, new.width, new.eps, axis)
        return own.to(device=anchor.device, dtype=anchor.dtype)
    made = unswapped(deepcopy(model.get_submodule(new.like)))
    if not new.copied:
        _start(made, new)
    return made


class Crosswise(Norm):
    """A norm over another axis than the last, which is counted from the last."""

    def __init__(self, kind: str, width: int, eps: float, axis: int) -> None:
        super().__init__(kind, width, eps)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(self.axis, -1)).movedim(-1, self.axis)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, axis={self.axis}"


def _start(made: nn.Module, new: NewNorm) -> None:
    """Give a norm gain 1 and bias 0, whatever it writes for that: some multiply by 1 + weight."""
    parameters = dict(made.named_parameters())
    if not parameters or any(one.is_meta for one in parameters.values()):
        return
    for values in product((1.0, 0.0), repeat=len(parameters)):
        for parameter, value in zip(parameters.values(), values, strict=True):
            parameter.data.fill_(value)
        if _is_bare(made, new):
            if new.start != 1.0:
                parameters[next(iter(parameters))].data.add_(new.start - 1.0)
            return
    raise ValueError(f"no values of {', '.join(parameters)} make {new.like} a norm with gain 1 and bias 0")


@torch.no_grad()
def _is_bare(made: nn.Module, new: NewNorm) -> bool:
    """Whether a norm has gain 1 and bias 0: its output is what its kind is defined to be."""
    anchor = next(made.parameters())
    generator = torch.Generator().manual_seed(0)
    for shape, axes in _inputs(anchor, new):
        rows = torch.randn(shape, generator=generator)
        try:
            result = made(rows.to(device=anchor.device, dtype=anchor.dtype))
        except (RuntimeError, IndexError):  # a norm of channels that takes images
            continue
        close = CLOSE if result.dtype == torch.float32 else 3e-2
        bare = _bare(rows, axes, new)
        scale = float((result.float().cpu() * bare).sum() / bare.square().sum())  # of a variance that is not biased
        return 0.8 < scale < 1.2 and bool((result.float().cpu() - scale * bare).abs().max() < close)
    return False


def _inputs(anchor: Tensor, new: NewNorm) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes that an input may have, each with the axes of its statistics: tokens by features, or channels first."""
    first = ((4, anchor.numel(), 2, 2), new.axes if new.axes != (-1,) else (-3,))
    return [((4, 3, new.width), (-1,)), first] if new.axes == (-1,) else [first]


def _bare(rows: Tensor, axes: tuple[int, ...], new: NewNorm) -> Tensor:
    """A norm by its definition."""
    if new.kind in ("dyt", "derf"):
        bare: Tensor = Norm(new.kind, new.width, new.eps)(rows)
        return bare
    if new.kind not in ("rmsnorm", "l2norm"):
        rows = rows - rows.mean(axes, keepdim=True)
    square = rows.square()
    total = square.sum(axes, keepdim=True) if new.kind == "l2norm" else square.mean(axes, keepdim=True)
    return rows / (total + new.eps).sqrt()
