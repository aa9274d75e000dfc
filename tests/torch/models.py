"""Every placement as a small spec, and models of specs with random weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normula.formula import Placement
from normula.oracle.norms import Array
from normula.spec import Spec
from normula.spec.kinds import NORM_KINDS
from normula.torch import Model, build
from tests.cases import random_inputs, random_weights, small

PADDED = np.array([[True, True, True, True, True], [True, True, True, False, False]])
SOURCE_PADDED = np.array([[True, True, True, False], [False, True, True, True]])


def title(placement: str | Placement) -> str:
    return placement if isinstance(placement, str) else placement.name


def as_small(placement: Placement, **fields: Any) -> Spec:
    """A small spec of any placement; one that counts the layers of an encoder gets one to attend to."""
    if any({"Le", "Ld"} & set(formula.symbols) for formula in placement.formulas):
        fields |= {"sublayers": ("attn", "cross", "mlp"), "encoder": small("pre", layers=3)}
    return small(placement, **fields)


def takes(placement: Placement, norm: str) -> bool:
    """Whether a placement can have this kind of norm: one that says where a norm's gain starts needs a gain."""
    has_gain = any(parameter.name == "weight" for parameter in NORM_KINDS[norm].parameters)
    calls = [call for formula in (*placement.formulas, placement.embed, placement.final) for call in formula.calls]
    return has_gain or all(call.start is None for call in calls if call.word == "norm")


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
