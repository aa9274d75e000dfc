"""A measurement leaves everything as it was, and says the same each time."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from normula.flow import flow
from normula.spec import Recipe
from normula.torch import Model, build, train
from normula.torch.measure import measure
from normula.torch.passes import probe_loss
from tests.cases import small

RANDOM = probe_loss("random", 0, None)


@pytest.fixture
def model() -> Model:
    return build(small("pre", dropout=0.5))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.tensor(np.random.default_rng(0).standard_normal((2, 5, 8)), dtype=torch.float32)


def test_weights_gradients_and_modes_stay_as_they_were(model: Model, x: torch.Tensor) -> None:
    model.train()
    model.layers[0].eval()  # a mode of its own
    model(x).square().sum().backward()
    model.layers[1].requires_grad_(False)
    weights = {name: parameter.clone() for name, parameter in model.named_parameters()}
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    modes = {name: module.training for name, module in model.named_modules()}

    one = measure(model, x, RANDOM, seed=0)

    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])
        assert torch.equal(parameter.grad, gradients[name])
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert {w.gradient for w in one.weights if w.name.startswith("layers.1")} == {0.0}


def test_a_model_without_gradients_has_none_afterwards(model: Model, x: torch.Tensor) -> None:
    measure(model, x, RANDOM, seed=0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_measurement_that_fails_leaves_the_model_as_it_was(model: Model, x: torch.Tensor) -> None:
    model.train()
    with pytest.raises(ZeroDivisionError):
        measure(model, x, lambda output: output.sum() / (1 // 0), seed=0)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dropout_is_off_and_the_pass_repeats(model: Model, x: torch.Tensor) -> None:
    model.train()
    first = measure(model, x, RANDOM, seed=0)
    without = build(replace(model.spec, dropout=0.0))
    assert repr(measure(model, x, RANDOM, seed=0)) == repr(first)
    assert repr(measure(without, x, RANDOM, seed=0)) == repr(first)


@pytest.mark.filterwarnings("error")
def test_an_input_that_wants_a_gradient_gets_none_and_gives_the_same_numbers(model: Model, x: torch.Tensor) -> None:
    plain = measure(model, x, RANDOM, seed=0)
    leaf = x.clone().requires_grad_()

    assert repr(measure(model, leaf, RANDOM, seed=0)) == repr(plain)
    assert leaf.grad is None
    assert repr(measure(model, leaf * 1, RANDOM, seed=0)) == repr(plain)
    assert leaf.grad is None


def test_numbers_do_not_depend_on_whether_gradients_are_switched_on(model: Model, x: torch.Tensor) -> None:
    plain = measure(model, x, RANDOM, seed=0)
    with torch.no_grad():
        assert repr(measure(model, x, RANDOM, seed=0)) == repr(plain)
        assert not torch.is_grad_enabled()


def states() -> tuple[list[int], list[int]]:
    """Not that of `random`: the checks of array annotations draw from it."""
    return np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]


@pytest.mark.parametrize(
    "options",
    [dict(), dict(task="copy", steps=2), dict(probe="loss", task="copy")],
    ids=["at initialisation", "training", "loss"],
)
def test_the_generators_of_the_caller_are_not_touched(options: dict) -> None:
    before = states()
    flow(small("post", dropout=0.1, context=8), seeds=2, **options)
    assert states() == before


def test_a_flow_is_the_same_whatever_the_callers_generator() -> None:
    flows = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        flows.append(flow(small("post", dropout=0.1, context=8), seeds=1, task="copy", steps=2))
    assert repr(flows[0].passes) == repr(flows[1].passes)


def test_watching_a_training_run_does_not_change_it() -> None:
    from normula.data import task

    spec = small("pre", vocab=16, context=8, dropout=0.1)
    watched = []

    def watch(step: int, model: Model) -> None:
        ids = torch.arange(8)[None]
        watched.append(measure(model, ids, lambda output: output.square().sum(), seed=0, training_step=step))

    recipe = Recipe(steps=4, lr=1e-2)
    alone = train(spec, task("copy"), recipe)
    seen = train(spec, task("copy"), recipe, observe=watch)
    assert replace(seen, seconds=0.0) == replace(alone, seconds=0.0)
    assert [one.training_step for one in watched] == [0, 1, 2, 3, 4]


def test_a_built_model_is_measured_with_the_weights_that_it_has() -> None:
    model = build(small("pre"))
    as_spec = flow(small("pre"), seeds=1)
    assert flow(model, seeds=1).passes == as_spec.passes
    with torch.no_grad():
        model.layers[0].attn.f.o.weight.zero_()
        model.layers[0].attn.f.o.bias.zero_()
    changed = flow(model, seeds=1)
    assert changed.passes[0].steps[0].branch_rms == 0.0
    assert as_spec.passes[0].steps[0].branch_rms > 0


def test_no_warning_reaches_the_user() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow(small("pre"), seeds=1)
        flow(small("post", context=8), seeds=1, task="copy", steps=1, probe="loss")
