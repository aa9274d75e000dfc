"""Our call of PyTorch's kernel, against PyTorch's own optimisers, bit for bit."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch import nn

from normula.torch.adam import Adam

SETTINGS = dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-8)


def parameters() -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=random)) for shape in ((3, 5), (7,), (), (33, 2), (1,), (0, 4))]


def groups(own: list[nn.Parameter]) -> list[dict]:
    return [{"params": own[:2], "weight_decay": 0.1}, {"params": own[2:], "weight_decay": 0.0}]


def moved(own: list[nn.Parameter], optimiser: Adam | torch.optim.Optimizer, steps: range) -> None:
    """Some updates; the second parameter has no gradient in every other one, as a part that is skipped."""
    for step in steps:
        optimiser.zero_grad(set_to_none=True)
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        random = torch.Generator().manual_seed(step)
        for place, one in enumerate(own):
            if place != 1 or step % 2:
                one.grad = torch.randn(one.shape, generator=random)
        optimiser.step()


@pytest.mark.parametrize("decoupled", [False, True])
def test_it_is_pytorchs_bit_for_bit(decoupled: bool) -> None:
    ours, theirs = parameters(), parameters()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    moved(ours, Adam(groups(ours), decoupled=decoupled, **SETTINGS), range(7))
    moved(theirs, kind(groups(theirs), fused=True, **SETTINGS), range(7))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[1], parameters()[1])


def test_it_goes_on_from_its_state() -> None:
    whole, parts = parameters(), parameters()
    moved(whole, Adam(groups(whole), decoupled=True, **SETTINGS), range(6))
    first = Adam(groups(parts), decoupled=True, **SETTINGS)
    moved(parts, first, range(3))
    second = Adam(groups(parts), decoupled=True, **SETTINGS)
    second.load_state_dict(deepcopy(first.state_dict()))
    moved(parts, second, range(3, 6))
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_without_any_gradient_nothing_moves() -> None:
    own = parameters()
    Adam(groups(own), decoupled=True, **SETTINGS).step()
    assert all(torch.equal(one, other) for one, other in zip(own, parameters(), strict=True))


def test_a_training_loads_no_compiler() -> None:
    """PyTorch's takes about a second to load, in every process of a race."""
    program = """
import sys
from normula.data import task
from normula.spec import Recipe
from normula.torch import train

copy = task("copy")
spec = copy.spec(placement="pre", layers=1, width=8, heads=1)
assert len(train(spec, copy, Recipe(steps=2, lr=1e-3, batch=2)).curve) == 2
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
