"""The skip path alone, against closed forms."""

import numpy as np
import pytest
import torch
from torch import Tensor

from normula import oracle
from normula.oracle.norms import Array
from normula.spec import Spec
from normula.torch import build
from normula.torch.measure import measure
from tests.cases import random_inputs, random_weights, small
from tests.flow.plain import run
from tests.near import FLOAT64

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("float64")]


def jacobian(x: Array) -> Array:
    """LayerNorm's, at gain 1 and without epsilon: Xiong et al., 2020, before their lemma 3."""
    d = len(x)
    y = x - x.mean()
    size = np.linalg.norm(y)
    return np.sqrt(d) / size * (np.eye(d) - np.outer(y, y) / size**2) @ (np.eye(d) - np.ones((d, d)) / d)


def skip_gradients(spec: Spec, weights: dict[str, Array], inputs: Array, direction: Array) -> list[float]:
    """What the pass says of every step, first step first, and then of the output."""
    model = build(spec)
    model.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})

    def probe(output: Tensor) -> Tensor:
        return (output * torch.tensor(direction)).sum()

    one = measure(model, torch.tensor(inputs), probe, seed=0)
    assert one.steps[0].skip_gradient == one.skip_gradient
    return [*(step.skip_gradient for step in one.steps), one.output_gradient]


@pytest.mark.parametrize("name", ["pre-no-final", "none", "rezero"])
def test_an_open_skip_path_carries_exactly_what_arrives(name: str) -> None:
    spec = small(name, layers=5)
    inputs = random_inputs(spec)
    direction = np.random.default_rng(5).standard_normal(inputs.shape)
    *steps, arriving = skip_gradients(spec, random_weights(spec), inputs, direction)
    assert steps == [arriving] * 10


@pytest.mark.parametrize("name", ["post", "deepnorm"])
def test_behind_the_sum_it_is_the_product_of_the_norms_jacobians(name: str) -> None:
    spec = small(name, layers=3, eps=0.0)
    weights = oracle.weights(spec)  # norms at gain 1 and bias 0: the closed form has neither
    inputs = random_inputs(spec, batch=1, tokens=2)
    alpha = (2 * spec.layers) ** 0.25 if name == "deepnorm" else 1.0
    x = torch.tensor(inputs, requires_grad=True)
    points, _ = run(spec, name, {key: torch.tensor(array) for key, array in weights.items()}, x)
    direction = np.random.default_rng(5).standard_normal(inputs.shape)

    *steps, _ = skip_gradients(spec, weights, inputs, direction)

    gradient = direction[0]
    for step, point in zip(reversed(steps), reversed(points), strict=True):
        sums = (point.skip + point.branch).detach().numpy()[0]
        gradient = np.stack([alpha * jacobian(sums[t]).T @ gradient[t] for t in range(2)])
        assert step == pytest.approx(np.linalg.norm(gradient), rel=FLOAT64)


def test_a_final_norm_stands_once_on_the_skip_path_of_pre_ln() -> None:
    spec = small("pre", layers=3, eps=0.0)
    weights = oracle.weights(spec)
    inputs = random_inputs(spec, batch=1, tokens=2)
    last = oracle.run(spec, weights, inputs).stream[-1]
    direction = np.random.default_rng(5).standard_normal(inputs.shape)
    expected = np.stack([jacobian(last[0, t]).T @ direction[0, t] for t in range(2)])

    *steps, _ = skip_gradients(spec, weights, inputs, direction)

    assert steps == [pytest.approx(np.linalg.norm(expected), rel=FLOAT64)] * 6


def test_the_jacobian_of_the_closed_form_is_that_of_layernorm() -> None:
    x = torch.tensor(np.random.default_rng(0).standard_normal(8))
    truth = torch.autograd.functional.jacobian(lambda v: torch.nn.functional.layer_norm(v, (8,), eps=0.0), x)
    np.testing.assert_allclose(jacobian(x.numpy()), truth.numpy(), rtol=1e-12, atol=1e-14)
