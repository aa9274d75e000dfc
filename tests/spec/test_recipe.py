"""The learning rate at every update, against the schedulers of PyTorch and the papers; and what a recipe cannot be."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from normula.spec import Recipe
from normula.spec.recipe import SHAPES

LR = 0.3


def scheduled(steps: int, warmup: int, after: Any) -> list[float]:
    """The rates of PyTorch's schedulers, one for each update."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    parts: list[LRScheduler] = []
    if warmup > 1:
        parts.append(LinearLR(optimiser, start_factor=1 / warmup, total_iters=warmup - 1))
    parts.append(after(optimiser))
    whole = SequentialLR(optimiser, parts, milestones=[warmup - 1] * (len(parts) - 1)) if warmup > 1 else parts[0]
    rates = []
    for _ in range(steps):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        whole.step()
    return rates


@pytest.mark.parametrize("steps", [1, 7, 20])
def test_cosine_without_warmup_is_pytorchs(steps: int) -> None:
    found = [Recipe(steps=steps, lr=LR, shape="cosine").rate(t) for t in range(steps)]
    assert found == pytest.approx(scheduled(steps, 0, lambda one: CosineAnnealingLR(one, T_max=steps)))


@pytest.mark.parametrize("steps", [2, 20])
def test_linear_without_warmup_is_pytorchs(steps: int) -> None:
    found = [Recipe(steps=steps, lr=LR, shape="linear").rate(t) for t in range(steps)]
    assert found == pytest.approx(scheduled(steps, 0, lambda one: LinearLR(one, 1.0, 0.0, total_iters=steps)))


def test_a_warmup_is_pytorchs() -> None:
    found = [Recipe(steps=9, lr=LR, warmup=4).rate(t) for t in range(9)]
    assert found == pytest.approx(scheduled(9, 4, lambda one: LinearLR(one, 1.0, 1.0)))


def test_inverse_root_is_that_of_the_transformer() -> None:
    """d^-0.5 min(t^-0.5, t w^-1.5) with t from 1, as a share of its peak: Vaswani et al., 2017, equation 3."""
    w, steps = 6, 30
    paper = [min(t**-0.5, t * w**-1.5) / w**-0.5 for t in range(1, steps + 1)]
    recipe = Recipe(steps=steps, lr=LR, warmup=w, shape="rsqrt")
    assert [recipe.rate(t) for t in range(steps)] == pytest.approx([LR * share for share in paper])


def test_a_warmup_as_long_as_the_training_only_rises() -> None:
    for shape in SHAPES:
        for warmup in (5, 50):
            recipe = Recipe(steps=5, lr=LR, warmup=warmup, shape=shape)
            assert [recipe.rate(t) for t in range(5)] == pytest.approx([LR * (t + 1) / warmup for t in range(5)])


@pytest.mark.property
@given(
    steps=st.integers(1, 200),
    warmup=st.integers(0, 250),
    shape=st.sampled_from(list(SHAPES)),
    lr=st.floats(1e-8, 1e3),
)
def test_a_rate_rises_to_its_highest_and_never_rises_again(steps: int, warmup: int, shape: str, lr: float) -> None:
    recipe = Recipe(steps=steps, lr=lr, warmup=warmup, shape=shape)
    rates = [recipe.rate(t) for t in range(steps)]
    assert all(0 < rate <= lr for rate in rates)
    turn = max(warmup - 1, 0)
    assert all(a < b for a, b in pairwise(rates[: turn + 1]))
    assert all(a >= b for a, b in pairwise(rates[turn:]))
    if warmup <= steps:
        assert max(rates) == pytest.approx(lr)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(steps=0), "steps is a whole number of at least 1, not 0"),
        (dict(steps=2.5), "steps is a whole number of at least 1, not 2.5"),
        (dict(batch=0), "batch is a whole number"),
        (dict(warmup=-1), "a warmup is a whole number of at least 0, not -1"),
        (dict(lr=0.0), "a learning rate is a positive number, not 0.0"),
        (dict(lr=math.nan), "a learning rate is a positive number, not nan"),
        (dict(lr=math.inf), "a learning rate is a positive number, not inf"),
        (dict(shape="cosin"), "shape is one of constant, linear, cosine, rsqrt, not 'cosin'; did you mean 'cosine'"),
        (dict(optimiser="lion"), "optimiser is one of adam, adamw, sgd, not 'lion'"),
        (dict(dtype="float16"), "dtype is one of float32, bfloat16"),
        (dict(clip=0.0), "clip is a positive number, or None"),
        (dict(clip=math.nan), "clip is a positive number, or None"),
        (dict(weight_decay=-0.1), "weight_decay is a number from 0"),
        (dict(beta2=1.0), "beta2 is from 0 up to 1, not 1.0"),
        (dict(beta1=-0.1), "beta1 is from 0 up to 1"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**(dict(steps=5, lr=1e-3) | fields))
