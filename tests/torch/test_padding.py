"""A classifier of a sequence that is padding alone."""

import pytest
import torch

from normula import oracle
from tests.cases import random_inputs, random_weights, small
from tests.near import FLOAT64, assert_near
from tests.torch.models import gradients, model_of


@pytest.mark.oracle
@pytest.mark.parametrize("vocab", [None, 7])
def test_the_mean_of_no_token_is_zero(vocab: int | None) -> None:
    spec = small("pre", classes=3, vocab=vocab)
    arrays, inputs = random_weights(spec), random_inputs(spec)
    mask = torch.tensor([[True, True, False, False, False], [False] * 5])
    model = model_of(spec, arrays)

    output = model(torch.tensor(inputs), mask)
    torch.autograd.backward(output.square().sum())

    assert_near(output.detach().numpy(), oracle.run(spec, arrays, inputs, mask.numpy()).output, FLOAT64)
    assert torch.equal(output[1], torch.zeros(3, dtype=torch.float64))
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
