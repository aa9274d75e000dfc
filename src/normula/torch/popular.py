"""The stack of the popular figure: blocks of one linear map and ReLU, PyTorch's own initial weights.

It is kept as it goes round, with PyTorch's global generator and its order of draws, so that the figure's
numbers come out to the digit: 20 blocks of width 64, seed 42, a (4, 64) normal input and the sum of the output
as the loss give 0.0000 for Post-LN and 35.7888 for Pre-LN.
"""

from __future__ import annotations

import torch
from torch import nn

from normula.formula import Placement
from normula.record import PopularPoint
from normula.spec import Spec
from normula.torch.build import build
from normula.torch.measure import measure
from normula.torch.passes import probe_loss


def popular(
    placement: Placement, depth: int, probe: str, *, width: int = 64, rows: int = 4, seed: int = 42
) -> PopularPoint:
    """The gradient at the input of the popular stack.

    Args:
        placement: a step; the stack has neither an embedding norm nor a final one, as the figure has it.
        depth: number of blocks.
        probe: `sum` as in the figure, or `random`.
        width, rows, seed: of the figure.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        spec = Spec(placement=placement, layers=depth, width=width, heads=1, sublayers=("mlp",), embed="x", final="x")
        model = build(spec, modules={"mlp": lambda layer: nn.Sequential(nn.Linear(width, width), nn.ReLU())})
        x = torch.randn(rows, width)
    one = measure(model, x[:, None, :], probe_loss(probe, seed, None), seed=seed)
    return PopularPoint(
        name=placement.name,
        depth=depth,
        probe=probe,
        input_gradient=one.input_gradient,
        norm_passes=one.norm_passes,
    )
