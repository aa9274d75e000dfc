"""Two looks at a language model at its initial weights: the gradient of its loss, and what one update does."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F

from normula.data import Batch
from normula.record import Start
from normula.spec import Recipe, Spec
from normula.torch.batch import loss
from normula.torch.build import build
from normula.torch.train import optimiser as made


def start(spec: Spec, batch: Batch, weights: Sequence[str] = ()) -> Start:
    """A model with a vocabulary at its initial weights, on one batch.

    It costs a third of what `passes` does, which looks at every step, and at the skip path by itself.

    Args:
        spec: what to build.
        batch: ids that go in and ids that should come out.
        weights: names of the parameters whose gradients are wanted.
    """
    model = build(spec).eval()
    parameters = dict(model.named_parameters())
    states = model.states(torch.from_numpy(batch.inputs))
    value = F.cross_entropy(states.output.flatten(0, 1), torch.from_numpy(batch.targets).flatten())
    wanted = [states.stream[0], *(parameters[name] for name in weights)]
    first, *others = (torch.linalg.vector_norm(g.double()).item() for g in torch.autograd.grad(value, wanted))
    return Start(
        loss=value.item(),
        input_gradient=first,
        gradients=tuple(others),
        variances=tuple(x.detach().double().var(dim=-1, correction=0).mean().item() for x in states.stream),
    )


def one_step_update(
    spec: Spec, batch: Batch, *, optimiser: str, lr: float, weights: Collection[str] | None = None
) -> float:
    """How far one update moves the logits of the batch that it was made on: |F1 - F0| / |F0|, over B, T and V.

    Args:
        spec: what to build, at its initial weights.
        batch: ids that go in and ids that should come out.
        optimiser: adam or sgd.
        lr: learning rate.
        weights: names of the parameters that are updated; None for all.
    """
    model = build(spec).eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(weights is None or name in weights)
    optimizer = made(model, Recipe(steps=1, lr=lr, optimiser=optimiser))
    inputs = torch.from_numpy(batch.inputs)
    with torch.no_grad():
        before = model(inputs).double()
    torch.autograd.backward(loss(model, batch))
    optimizer.step()
    with torch.no_grad():
        after = model(inputs).double()
    moved: float = (torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)).item()
    return moved
