"""A model that was read is as it was: its mode, hooks, random state, gradients, parameters and buffers."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normula.read import read
from tests.read import models as m


class Restless(nn.Module):
    """A forward that draws, counts, caches, changes its weights, its buffers and its input, and may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.block = m.Block(m.pre)
        self.register_buffer("count", torch.zeros(1))
        self.rescaled = False
        self.fails = False
        self.table: dict[str, Tensor] = {}
        self.batchnorm = nn.BatchNorm1d(m.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.rescaled = True
        self.cached = x + torch.rand(1)
        self.block.mlp.down.weight.div_(2) if not torch.is_grad_enabled() else None
        random.random(), np.random.rand(), torch.rand(3)
        x.mul_(1.0)
        if self.fails:
            raise RuntimeError("as asked")
        return self.block(self.batchnorm(x.transpose(1, 2)).transpose(1, 2))


def state(model: nn.Module) -> dict[str, Any]:
    """All that can be seen of a model and of the random generators."""
    return {
        "parameters": {name: (id(one), one.detach().clone()) for name, one in model.named_parameters()},
        "buffers": {name: (id(one), one.detach().clone()) for name, one in model.named_buffers()},
        "gradients": {name: None if one.grad is None else one.grad.clone() for name, one in model.named_parameters()},
        "requires": [one.requires_grad for one in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "hooks": [
            (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks))
            for module in model.modules()
        ],
        "global hooks": len(nn.modules.module._global_forward_hooks),
        # Python's own generator is also drawn from by the run-time type checks of a test run
        "random": (torch.get_rng_state().clone(), np.random.get_state()[1].tolist()),
        "switches": (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_nothing_is_changed(fails: bool, train: bool) -> None:
    model = Restless().train(train)
    model.fails = fails
    calls: list[int] = []
    model.block.register_forward_hook(lambda *_: calls.append(1))
    model.block.attn.train(not train)
    model.block.mlp.up.weight.grad = torch.ones_like(model.block.mlp.up.weight)
    x = m.stream()
    given, before = x.clone(), state(model)
    if fails:
        with pytest.raises(RuntimeError, match="as asked"):
            read(model, x)
    else:
        assert read(model, x).stages
    after = state(model)
    assert [key for key in before if not same(before[key], after[key])] == []
    assert torch.equal(x, given)
    assert model.rescaled is False


def test_the_same_model_is_read_the_same() -> None:
    model = m.stack(m.post)
    assert read(model, m.stream()) == read(copy.deepcopy(model), m.stream())


def test_a_frozen_model_is_read() -> None:
    model = m.stack(m.pre).requires_grad_(False)
    with torch.no_grad():
        assert read(model, m.stream()).stages[0].proof == "replayed"


def test_tied_parameters_are_one() -> None:
    model = m.stack(m.pre)
    model.layers[1].norm1.weight = model.layers[0].norm1.weight
    model.layers[1].norm1.bias = model.layers[0].norm1.bias
    tied = next(norm for norm in read(model, m.stream()).norms if norm.path == "layers.0.norm1")
    assert (tied.calls, tied.layers) == (2, (1, 2))
