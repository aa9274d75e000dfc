"""The stack of the popular figure: blocks of one linear map and ReLU, with the initial weights that PyTorch gives them.

The figure's numbers come from PyTorch's global generator and its order of draws. Both are written out here, so that
they come out without PyTorch: 20 blocks of width 64, seed 42, a (4, 64) normal input and the sum of the output as the
loss give 0.0000 for Post-LN and 35.7888 for Pre-LN.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.typing import NDArray

from normula.data import random_direction
from normula.flax.measure import Case, direction_loss, measure
from normula.flax.network import Factory, network
from normula.flax.tree import put, stacked, to_tree
from normula.formula import Placement
from normula.oracle import weights
from normula.record import PopularPoint
from normula.spec import Spec


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
    spec = Spec(placement=placement, layers=depth, width=width, heads=1, sublayers=("mlp",), embed="x", final="x")
    net = network(spec, {"mlp": _block(width)})
    draws = _Draws(seed)
    blocks = [draws.linear(width) for _ in range(depth)]
    x = draws.normal((rows, width))[:, None, :]
    params = to_tree(net, weights(spec, given=net.given))
    place = 0
    for group in net.groups:
        own = blocks[place : place + group.count]
        put(params, (group.name, "mlp", "f"), stacked(own))
        place += group.count
    direction = np.ones(x.shape) if probe == "sum" else random_direction(x.shape, seed)
    case = Case(seed=seed, training_step=0, params=params, inputs=jnp.asarray(x), target=jnp.asarray(direction, float))
    (one,) = measure(net, [case], direction_loss)
    return PopularPoint(
        name=placement.name,
        depth=depth,
        probe=probe,
        input_gradient=one.input_gradient,
        norm_passes=one.norm_passes,
    )


@cache
def _block(width: int) -> Factory:
    """The same maker each time, so that the network is compiled once."""
    return lambda layer: nn.Sequential([nn.Dense(width), nn.relu])


class _Draws:
    """PyTorch's generator on a CPU: the Mersenne Twister, of whose numbers a float takes the lowest 24 bits.

    aten/src/ATen/core/TransformationHelper.h, uniform_real; native/cpu/DistributionTemplates.h, normal_fill.
    """

    def __init__(self, seed: int) -> None:
        self.twister = np.random.RandomState(seed)

    def uniform(self, size: int) -> NDArray[np.float32]:
        """In [0, 1)."""
        drawn = self.twister.randint(0, 1 << 32, size, dtype=np.uint32) & np.uint32((1 << 24) - 1)
        return drawn.astype(np.float32) * np.float32(2**-24)

    def linear(self, width: int) -> dict[str, Any]:
        """A linear map of (width, width) as torch.nn.Linear starts it, under Flax's names."""
        bound = math.sqrt(3) * math.sqrt(2 / (1 + 5)) / math.sqrt(width)
        weight = self._between(bound, width * width).reshape(width, width)
        bias = self._between(1 / math.sqrt(width), width)
        return {"layers_0": {"kernel": jnp.asarray(weight.T), "bias": jnp.asarray(bias)}}

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal, by Box and Muller on each sixteen numbers; at least sixteen in all, a multiple of it."""
        both = self.uniform(math.prod(shape)).reshape(-1, 2, 8)
        radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - both[:, 0]))
        angle = np.float32(2 * math.pi) * both[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(shape)

    def _between(self, bound: float, size: int) -> NDArray[np.float32]:
        low, high = np.float32(-bound), np.float32(bound)
        return self.uniform(size) * (high - low) + low
