"""A batch of a task, given to a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normula.data import Batch
from normula.data.batch import NOT_SCORED
from normula.torch.model import Model, States


def predict(model: nn.Module, batch: Batch, device: str = "cpu") -> Tensor:
    """What a model says to a batch: logits (B, T, V), or (B, classes) of a classifier.

    It is called as model(inputs), with source= and source_mask= where the batch has them.
    A model of the user's may answer with an object that has `logits`, as those of transformers do.
    """
    given = _given(batch, device)
    answer = model(given.pop("inputs"), **given)
    logits = getattr(answer, "logits", answer)
    assert isinstance(logits, Tensor)
    return logits


def states(model: Model, batch: Batch, device: str = "cpu") -> States:
    """All that a pass over a batch shows."""
    given = _given(batch, device)
    return model.states(given.pop("inputs"), **given)


def scored(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The logits as rows (N, V) in float32 or wider, and the targets (N,) of which -1 is not scored."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.flatten(0, -2).to(wide), torch.from_numpy(batch.targets).to(logits.device).flatten()


def loss(model: nn.Module, batch: Batch, device: str = "cpu") -> Tensor:
    """Mean cross-entropy over all that is scored, in nats."""
    return F.cross_entropy(*scored(predict(model, batch, device), batch), ignore_index=NOT_SCORED)


def judged(model: nn.Module, batch: Batch, device: str = "cpu") -> tuple[float, float]:
    """The loss in nats and the accuracy of a model on a batch, without dropout."""
    with without_dropout(model):
        logits, targets = scored(predict(model, batch, device), batch)
        value = F.cross_entropy(logits, targets, ignore_index=NOT_SCORED).item()
        right = (logits.argmax(dim=-1) == targets)[targets != NOT_SCORED]
    return value, right.float().mean().item()


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside: evaluation mode and no gradients."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _given(batch: Batch, device: str) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array).to(device) for name, array in batch.arguments.items()}
