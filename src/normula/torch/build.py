"""Spec to PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from normula.oracle import weights as initial_weights
from normula.spec import Spec, plan
from normula.torch.layer import Factory
from normula.torch.model import Model


def build(spec: Spec, modules: Mapping[str, Factory] | None = None) -> Model:
    """A PyTorch model of a spec, in the default dtype, with the spec's initial weights.

        >>> import torch
        >>> model = build(Spec(placement="pre", layers=2, width=8, heads=2))
        >>> model(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])

    Args:
        spec: what to build.
        modules: for sublayers of your own, a function from the layer (from 0) to a module, such as
            `{"mlp": lambda layer: torch.nn.Linear(64, 64)}`; such a module keeps the weights it was made with.

    Raises:
        ValueError: the spec cannot be built; the message says why.
    """
    modules = dict(modules or {})
    for word, factory in modules.items():
        if isinstance(factory, nn.Module):
            raise ValueError(
                f"modules[{word!r}] is one module, and every layer needs its own; give a function such as "
                f"lambda layer: {type(factory).__name__}(...)"
            )
    written = plan(spec, given=modules)
    unused = set(modules) - {step.kind(call) for steps in written.layers for step in steps for call in step.sublayers}
    if unused:
        raise ValueError(
            f"no layer has a sublayer {', '.join(sorted(unused))}; the module given for it would do nothing"
        )
    with torch.device("meta"):  # no storage, no draws: the weights come from the oracle
        model = Model(written, modules)
    dtype = torch.get_default_dtype()
    start = {name: torch.tensor(array, dtype=dtype) for name, array in initial_weights(spec, given=modules).items()}
    own = model.state_dict()
    model.load_state_dict({name: start.get(name, own[name]) for name in own}, assign=True)
    return model


BUILDERS = {"torch": build}
"""By the names that a user can give."""
