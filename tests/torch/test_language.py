"""The gradient of a language model's loss at the start, and what one update does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normula.data import Batch
from normula.spec import Spec
from normula.torch import build, one_step_update, start
from normula.torch.measure import measure

SPEC = Spec(placement="x + f(norm(x))", layers=3, width=16, heads=2, vocab=11, context=8, causal=True)
DOWN = ("layers.0.mlp.f.down.weight", "layers.2.mlp.f.down.weight")


def batch() -> Batch:
    inputs, targets = np.random.default_rng(0).integers(0, 11, (2, 3, 8))
    return Batch(inputs, targets)


def test_a_start_agrees_with_a_whole_measurement() -> None:
    targets = torch.from_numpy(batch().targets).flatten()
    one = measure(
        build(SPEC),
        torch.from_numpy(batch().inputs),
        lambda y: F.cross_entropy(y.flatten(0, 1), targets),
        seed=0,
        is_loss=True,
    )
    found = start(SPEC, batch(), DOWN)
    gradients = {weight.name: weight.gradient for weight in one.weights}
    assert found.loss == pytest.approx(one.loss, rel=1e-6)
    assert found.input_gradient == pytest.approx(one.input_gradient, rel=1e-5)
    assert found.gradients == pytest.approx([gradients[name] for name in DOWN], rel=1e-5)
    assert len(found.variances) == SPEC.layers + 1
    assert found.variances[-1] < one.steps[-1].rms_after ** 2  # less the mean's square


def test_an_update_of_sgd_is_in_proportion_to_its_rate() -> None:
    small, twice = (one_step_update(SPEC, batch(), optimiser="sgd", lr=lr) for lr in (1e-3, 2e-3))
    assert twice == pytest.approx(2 * small, rel=0.02)  # the second order in the rate is what is left


def test_only_the_named_weights_move() -> None:
    silent = replace(SPEC, placement="x + gain(0)*f(x)")  # a branch of gain 0 has no say, whatever its weights
    assert one_step_update(silent, batch(), optimiser="adam", lr=1e-2, weights=DOWN) == 0.0
    assert one_step_update(silent, batch(), optimiser="adam", lr=1e-2) > 0.01


def test_an_update_is_what_it_says() -> None:
    model = build(SPEC)
    inputs, targets = (torch.from_numpy(part) for part in (batch().inputs, batch().targets))
    before = model(inputs).detach()
    F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
        moved = model(inputs)
    expected = ((moved - before).norm() / before.norm()).item()
    assert one_step_update(SPEC, batch(), optimiser="sgd", lr=0.1) == pytest.approx(expected, rel=1e-4)
