"""Measurements of a spec or a model: over seeds, and over the first steps of a short training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normula.data import Task, random_direction, random_input
from normula.record import Pass
from normula.spec import Recipe, Spec
from normula.torch.build import build
from normula.torch.measure import Loss, measure
from normula.torch.model import Model
from normula.torch.train import train

Report = Callable[[], None]


def passes(
    what: Spec | Model,
    *,
    seeds: Sequence[int],
    probe: str,
    batch: int,
    tokens: int,
    inputs: Any = None,
    task: Task | None = None,
    training_steps: Sequence[int] = (0,),
    lr: float = 1e-3,
    warmup: int = 0,
    report: Report = lambda: None,
) -> tuple[Pass, ...]:
    """One pass for each seed and training step.

    Args:
        what: a spec, which is built for each seed; or a model, measured with the weights that it has.
        seeds: of weights (for a spec), input and probe.
        probe: `random` (a random direction of length 1 in the output), `sum`, or `loss` (needs a task).
        batch, tokens: B and T of a random input.
        inputs: (B, T, D) vectors or (B, T) ids instead of a random input.
        task: gives real tokens, and the batches to train on.
        training_steps: numbers of updates after which to measure.
        lr, warmup: of the short training run.
        report: called after each pass.
    """
    found: list[Pass] = []
    for seed in seeds:
        model = what if isinstance(what, Model) else build(replace(what, seed=seed))
        x, targets = _input(model.spec, seed, batch, tokens, inputs, task)
        loss = probe_loss(probe, seed, targets)

        def observe(step: int, model: Model, seed: int = seed, x: Tensor = x, loss: Loss = loss) -> None:
            if step in training_steps:
                found.append(measure(model, x, loss, seed=seed, training_step=step, is_loss=probe == "loss"))
                report()

        last = max(training_steps)
        if last == 0:
            observe(0, model)
        else:
            assert isinstance(what, Spec)
            assert task is not None
            recipe = Recipe(steps=last, lr=lr, warmup=warmup, seed=seed)
            train(replace(what, seed=seed), task, recipe, observe=observe)
    return tuple(found)


def _input(
    spec: Spec, seed: int, batch: int, tokens: int, inputs: Any, task: Task | None
) -> tuple[Tensor, Tensor | None]:
    """What goes into the network, and what should come out where a task says it."""
    if inputs is not None:
        x = torch.as_tensor(np.asarray(inputs) if not isinstance(inputs, Tensor) else inputs)
        return (x.long() if spec.vocab is not None else x.to(torch.get_default_dtype())), None
    if task is not None:
        data = next(task.batches(seed + 1000, batch))  # not the first batch that training sees
        return torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    x = torch.from_numpy(random_input(spec, seed, batch, tokens))
    return (x if spec.vocab is not None else x.to(torch.get_default_dtype())), None


def probe_loss(probe: str, seed: int, targets: Tensor | None) -> Loss:
    """The number that is differentiated, from the network's output."""
    if probe == "sum":
        return lambda output: output.sum()
    if probe == "loss":
        assert targets is not None
        return lambda output: F.cross_entropy(output.flatten(0, -2).float(), targets.flatten(), ignore_index=-1)

    def random(output: Tensor) -> Tensor:
        direction = torch.from_numpy(random_direction(tuple(output.shape), seed))
        return torch.sum(output * direction.to(output.device, output.dtype))

    return random
