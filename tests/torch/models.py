"""Models with random weights, and what a pass gives as arrays."""

from collections.abc import Mapping

import torch
from torch import Tensor

from normula.oracle.norms import Array
from normula.spec import Spec
from normula.torch import Model, build
from tests.cases import random_inputs, random_weights


def model_of(spec: Spec, arrays: Mapping[str, Array] | None = None) -> Model:
    """A float64 model with these weights, or with random ones."""
    model = build(spec).double()
    arrays = random_weights(spec) if arrays is None else arrays
    model.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    return model


def inputs_of(spec: Spec, seed: int = 1, batch: int = 2, tokens: int = 5) -> Tensor:
    return torch.tensor(random_inputs(spec, seed, batch, tokens))


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter; zero for one that the output does not depend on."""
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
