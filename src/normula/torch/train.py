"""Training as a practitioner does it: one model, one task, a linear warmup, Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normula.data import Batch, Task
from normula.spec import Spec
from normula.torch.build import build
from normula.torch.model import Model

Observer = Callable[[int, Model], None]

OPTIMISERS: Mapping[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr=lr, betas=(0.9, 0.999), eps=1e-8, fused=True),
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, fused=True),
}
"""The optimisers, with every setting written out."""


def train(
    spec: Spec,
    task: Task,
    *,
    steps: int,
    lr: float,
    warmup: int = 0,
    batch: int = 16,
    optimiser: str = "adam",
    seed: int = 0,
    observe: Observer | None = None,
) -> tuple[list[float], float]:
    """Train a model of a spec from its initial weights.

    Args:
        spec: what to train; it needs a vocabulary.
        task: gives the batches; their order depends on `seed` alone.
        steps: updates.
        lr: learning rate after the warmup; it stays constant.
        warmup: updates over which the rate rises linearly from 0; 0 for none.
        batch: B, sequences in a batch.
        optimiser: adam or sgd.
        seed: of the order of the data.
        observe: called with the number of updates made and the model, before each update and at the end.

    Returns:
        The training loss at each step in nats, and the loss on the task's validation batch. Training ends
        early where a loss is not finite: the curve is then shorter, and its last value says what it became.
    """
    with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it is
        torch.default_generator.manual_seed(seed)  # dropout only: weights and data have generators of their own
        model = build(spec)
        optimizer = OPTIMISERS[optimiser](list(model.parameters()), lr)
        batches = task.batches(seed, batch)
        curve: list[float] = []
        for step in range(steps):
            if observe is not None:
                observe(step, model)
            for group in optimizer.param_groups:
                group["lr"] = lr * min(1.0, (step + 1) / warmup) if warmup else lr
            model.training_step.fill_(step)
            value = loss(model, next(batches))
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            curve.append(value.item())
            if not math.isfinite(curve[-1]):
                return curve, math.nan
            optimizer.step()
        if observe is not None:
            observe(steps, model)
        return curve, evaluate(model, task)


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy over all positions, in nats."""
    logits = model(torch.from_numpy(batch.inputs))
    return F.cross_entropy(logits.flatten(0, 1).float(), torch.from_numpy(batch.targets).flatten())


def evaluate(model: nn.Module, task: Task) -> float:
    """Loss on the validation batch, without dropout."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        value = loss(model, task.validation()).item()
    model.train(was_training)
    return value
