"""The optimizer of a model goes on with the rewired one."""

import pytest
import torch
from torch import nn

import normula as nm
from normula.rewire import RewireError, remap
from tests.rewire.models import stack


def trained(kind: str) -> tuple[nn.Module, torch.Tensor, torch.optim.Optimizer]:
    """A model after two updates, its norms and biases without decay."""
    model, (x,) = stack(kind)
    vectors = [one for one in model.parameters() if one.ndim < 2]
    matrices = [one for one in model.parameters() if one.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model, x, optimizer


def test_what_stays_keeps_its_moments_and_what_is_new_starts_without() -> None:
    model, x, optimizer = trained("post")
    new = nm.rewire(model, "peri", example=(x,), accept_inexact=True)
    made = remap(optimizer, model, new)
    before, after = dict(model.named_parameters()), dict(new.named_parameters())
    assert isinstance(made, torch.optim.AdamW)
    matrices, vectors = (group["params"] for group in made.param_groups)
    assert {id(one) for one in (*matrices, *vectors)} == {id(one) for one in new.parameters()}
    assert all(one.ndim < 2 for one in vectors)
    assert made.param_groups[1]["weight_decay"] == 0.0
    kept = before.keys() & after.keys()
    assert kept
    assert after.keys() - before.keys()
    for name, one in after.items():
        if name in kept:
            assert torch.equal(made.state[one]["exp_avg"], optimizer.state[before[name]]["exp_avg"])
        else:
            assert not made.state[one]


def test_an_exact_rewiring_makes_the_same_update() -> None:
    """A rewiring to its own formula changes nothing: one more update is the same in both."""
    model, x, optimizer = trained("pre")
    new = nm.rewire(model, "pre", example=(x,))
    made = remap(optimizer, model, new)
    for one, its in ((model, optimizer), (new, made)):
        its.zero_grad()
        one(x).square().mean().backward()
        its.step()
    for (name, one), (other, its) in zip(model.named_parameters(), new.named_parameters(), strict=True):
        assert name == other
        assert torch.allclose(one, its, atol=1e-6)


def test_both_norms_of_what_was_one_have_its_moments() -> None:
    model, x, optimizer = trained("parallel")
    new = nm.rewire(model, "parallel-two-norms", example=(x,), accept_inexact=True)
    copies = [one for one in new.rewiring.operation.norms if one.copied]
    assert copies
    made = remap(optimizer, model, new)
    for one in copies:
        its, origin = new.get_submodule(one.path).weight, model.get_submodule(one.like).weight
        assert torch.equal(made.state[its]["exp_avg"], optimizer.state[origin]["exp_avg"])
        assert made.state[its]["exp_avg"] is not optimizer.state[origin]["exp_avg"]


@pytest.mark.negative
def test_other_models_are_refused() -> None:
    model, x, optimizer = trained("post")
    with pytest.raises(RewireError, match="this one is none"):
        remap(optimizer, model, model)
    new = nm.rewire(model, "pre", example=(x,), accept_inexact=True)
    with pytest.raises(RewireError, match="none of the model"):
        remap(optimizer, stack("post")[0], new)
    fresh = nm.rewire(model, "pre", example=(x,), reinit="xavier")
    with pytest.raises(RewireError, match="drawn anew"):
        remap(optimizer, model, fresh)
