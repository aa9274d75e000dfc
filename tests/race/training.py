"""Both trainers, seen in the same way: weights by the plan's names, and an update written out in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import torch
import torch.nn.functional as F

from normula.data import Batch, Task
from normula.flax import nnx, to_tree
from normula.flax.tree import to_arrays
from normula.framework import room
from normula.oracle.norms import Array
from normula.record import Training
from normula.spec import Recipe, Spec
from normula.torch import build

FRAMEWORKS = ("torch", "flax")

Arrays = dict[str, Array]


@contextmanager
def doubles() -> Iterator[None]:
    """Inside, models are float64."""
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def model_with(framework: str, spec: Spec, arrays: Mapping[str, Array]) -> Any:
    """A model that has these weights."""
    if framework == "torch":
        model = build(spec)
        model.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
        return model
    stack = nnx.Stack(spec, param_dtype=jax.numpy.result_type(float))
    stack.load(to_tree(stack.network, dict(arrays), jax.numpy.result_type(float)))
    return stack


def trained(framework: str, what: Any, task: Task, recipe: Recipe, **options: Any) -> tuple[Training, list[Arrays]]:
    """A training, and the weights before each update and at the end."""
    seen: list[Arrays] = []

    def observe(step: int, *model: Any) -> None:
        assert step == len(seen)
        seen.append(weights_of(*model))

    return room(framework).train(what, task, recipe, observe=observe, **options), seen


def weights_of(*model: Any) -> Arrays:
    """What an observer is given, as arrays by the plan's names."""
    if len(model) == 2:
        return {name: np.asarray(array) for name, array in to_arrays(*model).items()}
    return {name: one.detach().numpy().copy() for name, one in model[0].named_parameters()}


def torch_gradients(spec: Spec, arrays: Mapping[str, Array], batch: Batch) -> tuple[float, Arrays, list[Array]]:
    """Loss, gradients and stream, straight from PyTorch in the default type."""
    model = model_with("torch", spec, arrays).eval()
    given = {name: torch.from_numpy(array) for name, array in batch.arguments.items()}
    states = model.states(given.pop("inputs"), **given)
    value = F.cross_entropy(states.output.flatten(0, -2), torch.from_numpy(batch.targets).flatten(), ignore_index=-1)
    value.backward()
    found = {
        name: np.zeros(one.shape) if one.grad is None else one.grad.numpy() for name, one in model.named_parameters()
    }
    return value.item(), found, [x.detach().numpy() for x in states.stream]


def by_hand(
    spec: Spec, start: Mapping[str, Array], task: Task, recipe: Recipe, decays: Callable[[str], bool]
) -> tuple[list[float], Arrays]:
    """The curve and the last weights: gradients from PyTorch, all else written out.

    Adam: Kingma and Ba, 2015, algorithm 1. AdamW: Loshchilov and Hutter, 2019, algorithm 2.
    """
    weights = {name: array.astype(np.float64) for name, array in start.items()}
    first = {name: np.zeros_like(array) for name, array in weights.items()}
    second = {name: np.zeros_like(array) for name, array in weights.items()}
    curve, batches = [], task.batches(recipe.seed, recipe.batch)
    for t in range(recipe.steps):
        value, gradients, _ = torch_gradients(spec, weights, next(batches))
        curve.append(value)
        if recipe.clip is not None:
            total = math.sqrt(sum((one**2).sum() for one in gradients.values()))
            gradients = {name: one * min(1.0, recipe.clip / (total + 1e-6)) for name, one in gradients.items()}
        for name, g in gradients.items():
            w, lr, decay = weights[name], recipe.rate(t), recipe.weight_decay if decays(name) else 0.0
            if recipe.optimiser != "adamw":
                g = g + decay * w
            if recipe.optimiser == "sgd":
                weights[name] = w - lr * g
                continue
            first[name] = recipe.beta1 * first[name] + (1 - recipe.beta1) * g
            second[name] = recipe.beta2 * second[name] + (1 - recipe.beta2) * g**2
            mean, square = first[name] / (1 - recipe.beta1 ** (t + 1)), second[name] / (1 - recipe.beta2 ** (t + 1))
            shrunk = w - lr * decay * w if recipe.optimiser == "adamw" else w
            weights[name] = shrunk - lr * mean / (np.sqrt(square) + 1e-8)
    return curve, weights


MATRICES = ("q", "k", "v", "o", "up", "gate", "down", "router", "features", "head")


def multiplies(name: str) -> bool:
    """Whether a parameter of this name is a matrix that multiplies."""
    *_, owner, last = name.split(".")
    return (last == "weight" and owner in MATRICES) or last.endswith("theta")
