"""A rewired model that learns what the old one knew: what is made smaller, and whether a task fits a model at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normula.data import Batch, Task
from normula.data.batch import NOT_SCORED
from normula.torch.batch import judged, loss, predict, scored, without_dropout
from normula.torch.train import Objective


def distilling(teacher: nn.Module, steps: int) -> Objective:
    """For the first updates, how far a model's predictions are from those of another one; then the loss of the task.

    That is KL(teacher || model) in nats, its mean over all that is scored (Hinton, Vinyals and Dean, Distilling the
    knowledge in a neural network, 2015, section 2, at temperature 1).

    Args:
        teacher: the other one; it is asked without dropout, and stays as it is.
        steps: how many updates.
    """

    def objective(step: int, model: nn.Module, batch: Batch) -> Tensor:
        device = where(model)
        if step >= steps:
            return loss(model, batch, device)
        with without_dropout(teacher):
            wanted, targets = scored(predict(teacher, batch, device), batch)
        found, _ = scored(predict(model, batch, device), batch)
        rows = targets != NOT_SCORED
        said, told = (one[rows].log_softmax(dim=-1) for one in (found, wanted))
        return F.kl_div(said, told, log_target=True, reduction="batchmean")

    return objective


def held_out(model: nn.Module, task: Task) -> float:
    """The loss in nats of a model on what a task holds out."""
    value, _ = judged(model, task.validation(), where(model))
    return value


def where(model: nn.Module) -> str:
    """The device of a model."""
    return str(next((one.device for one in model.parameters()), torch.device("cpu")))


def check_task(model: nn.Module, task: Task) -> None:
    """A model must take what a task gives, answer with logits, and not look ahead where the task has the next symbols.

    Raises:
        ValueError: it does not.
    """
    batch = _extreme(task)
    symbols = "values" if task.vocab is None else f"ids of {task.vocab} symbols"
    given = f"The {task.name} task gives {symbols}, {task.context} at once"
    try:
        with without_dropout(model):
            logits = predict(model, batch, where(model))
    except AssertionError:
        raise ValueError(
            f"{given}, and wants logits: a tensor, or an object that has `logits`. This model answers with something "
            "else; wrap it in a module that returns logits."
        ) from None
    except Exception as error:
        said = str(error).strip().splitlines()
        raise ValueError(
            f"{given}, and with that this model's forward raises {type(error).__name__}"
            f"{f' ({said[0]})' if said else ''}. Give a task that fits the model, or a model that fits the task."
        ) from error
    wanted = (*batch.targets.shape, task.classes or task.vocab or 1)
    if tuple(logits.shape[:-1]) != wanted[:-1] or logits.shape[-1] < wanted[-1]:
        raise ValueError(
            f"{given}, and wants logits of the shape {wanted}. This model answers with {tuple(logits.shape)}."
        )
    if task.causal and _looks_ahead(model, batch, logits):
        raise ValueError(
            f"In the {task.name} task each symbol is to foretell the next, and this model looks ahead: what it says of "
            "a symbol depends on later ones. Give a task without a next symbol, or a causal model."
        )


def _extreme(task: Task) -> Batch:
    """Two rows, with the last symbol of the vocabulary among them."""
    batch = task.validation(2)
    if task.vocab is None:
        return batch
    inputs = batch.inputs.copy()
    inputs[0, 0] = task.vocab - 1
    return replace(batch, inputs=inputs)


def _looks_ahead(model: nn.Module, batch: Batch, logits: Tensor) -> bool:
    other: Any = batch.inputs.copy()
    other[:, -1] = (other[:, -1] + 1) % (other.max() + 1)
    with without_dropout(model):
        after = predict(model, replace(batch, inputs=other), where(model))
    change = (after - logits)[:, :-1].abs().max()
    return bool(change > 1e-3 * logits.abs().max())
