"""PyTorch models of specs, with random weights."""

from collections.abc import Mapping

import torch
from torch import Tensor

from normula.oracle.norms import Array
from normula.spec import Spec
from normula.torch import Model, build
from tests.cases import PADDED, SOURCE_PADDED, random_inputs, random_weights


def arguments_of(spec: Spec) -> dict[str, Tensor]:
    """The arguments of a pass by name, with padding on every side there is."""
    found = {"inputs": inputs_of(spec), "mask": torch.tensor(PADDED)}
    if spec.encoder is not None:
        source = inputs_of(spec.encoder, seed=2, tokens=4)
        found |= {"source": source, "source_mask": torch.tensor(SOURCE_PADDED)}
    return found


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
