"""Training as a practitioner does it: one model, one task, one recipe; it can be stopped and gone on with."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normula.data import Batch, Task
from normula.data.course import follow
from normula.record import Snapshot, Training
from normula.spec import Recipe, Spec
from normula.torch.adam import Adam
from normula.torch.batch import judged, loss, states, without_dropout
from normula.torch.build import build
from normula.torch.model import Model
from normula.torch.sizes import rms

Observer = Callable[[int, Any], None]
Objective = Callable[[int, nn.Module, Batch], Tensor]
Optimiser: TypeAlias = torch.optim.Optimizer | Adam


def train(
    what: Spec | nn.Module,
    task: Task,
    recipe: Recipe,
    *,
    looks: Sequence[int] = (),
    observe: Observer | None = None,
    objective: Objective | None = None,
    state: bytes | None = None,
    until: int | None = None,
    seconds: float = math.inf,
    save: Callable[[bytes], None] | None = None,
    save_seconds: float = 60.0,
    device: str = "cpu",
) -> Training:
    """Train a model of a spec from its initial weights, or a model from the weights it has.

    Args:
        what: what to train; a spec needs what the task asks for, as `task.spec` gives it. A model changes in place.
        task: gives the batches; their order depends on the recipe's seed alone.
        recipe: how.
        looks: updates at which the stream and the gradient are looked at, and after which the held-out data are.
        observe: called with the number of updates made and the model, before each update and at the end.
        objective: what an update makes smaller, of the number of updates made, the model and a batch; None for the loss
            of the task. The curve is of this; what is held out is judged by the loss of the task always.
        state: of a training of the same arguments that was stopped, to go on from.
        until: stop after this many updates in all.
        seconds: stop when this much time was spent in updates, in all.
        save: called with the state now and then, so that a training that is killed can go on.
        save_seconds: that pass between two calls.
        device: cpu, cuda ...

    Returns:
        The training; with a state to go on from where it was stopped. It ends early where a loss is not finite: the
        curve is then shorter, and its last value says what it became.

    Raises:
        ValueError: a state of another recipe, or of another model.
    """
    place = torch.device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):  # the caller's stay as they are
        generators = _generators(place)
        for one in generators:
            one.manual_seed(recipe.seed)  # dropout only: weights and data have generators of their own
        model = (build(what) if isinstance(what, Spec) else what).train().to(place)
        return follow(
            _Learner(model, recipe, device, generators, objective),
            task,
            recipe,
            looks=looks,
            observe=None if observe is None else lambda step: observe(step, model),
            state=state,
            until=until,
            seconds=seconds,
            save=save,
            save_seconds=save_seconds,
        )


@dataclass(slots=True)
class _Learner:
    """A model and its optimiser."""

    model: nn.Module
    recipe: Recipe
    device: str
    generators: Sequence[torch.Generator]
    objective: Objective | None = None
    optimiser: Optimiser = field(init=False)

    def __post_init__(self) -> None:
        self.optimiser = optimiser(self.model, self.recipe)

    def loss(self, step: int, batch: Batch, rate: float) -> float:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        _tell(self.model, step)
        with self._precision():
            value = self._minimised(step, batch)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        return value.item()

    def snapshot(self, step: int, batch: Batch) -> Snapshot:
        whole = _norm(self.model.parameters())
        if not isinstance(self.model, Model):
            return Snapshot(step=step, gradient=whole)
        with without_dropout(self.model), self._precision():
            stream = states(self.model, batch, self.device).stream
        return Snapshot(
            step=step,
            gradient=whole,
            gradients=tuple(_norm(layer.parameters()) for layer in self.model.layers),
            rms=tuple(rms(x) for x in stream),
        )

    def update(self) -> None:
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()

    def evaluate(self, step: int, batch: Batch) -> tuple[float, float]:
        _tell(self.model, step)
        with self._precision():
            return judged(self.model, batch, self.device)

    def state(self, course: str) -> bytes:
        file = io.BytesIO()
        content = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generators": [one.get_state() for one in self.generators],
            "course": course,
        }
        torch.save(content, file)
        return file.getvalue()

    def load(self, state: bytes) -> str:
        content = torch.load(io.BytesIO(state), map_location=self.device, weights_only=True)
        self.model.load_state_dict(content["model"])
        self.optimiser.load_state_dict(content["optimiser"])
        for one, before in zip(self.generators, content["generators"], strict=True):
            one.set_state(before.cpu())
        course: str = content["course"]
        return course

    def _minimised(self, step: int, batch: Batch) -> Tensor:
        if self.objective is None:
            return loss(self.model, batch, self.device)
        return self.objective(step, self.model, batch)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.recipe.dtype == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def optimiser(model: nn.Module, recipe: Recipe) -> Optimiser:
    """The recipe's optimiser over all parameters that want a gradient, with every setting written out."""
    decayed = _matrices(model) if recipe.weight_decay else set()
    groups: dict[Any, list[nn.Parameter]] = {}
    for one in model.parameters():
        if one.requires_grad:
            groups.setdefault((one.device, one.dtype, one in decayed), []).append(one)
    settings = [
        {"params": group, "weight_decay": recipe.weight_decay if decays else 0.0}
        for (*_, decays), group in groups.items()
    ]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(settings, lr=recipe.lr, fused=True)
    betas = (recipe.beta1, recipe.beta2)
    return Adam(settings, lr=recipe.lr, betas=betas, eps=1e-8, decoupled=recipe.optimiser == "adamw")


def _matrices(model: nn.Module) -> set[nn.Parameter]:
    """The parameters that multiply vectors: as the plan says, and in modules of the user's by their shape."""
    elementwise = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)
    others = {one for module in model.modules() if isinstance(module, elementwise) for one in module.parameters()}
    found = {one for one in model.parameters() if one.ndim >= 2 and one not in others}
    if not isinstance(model, Model):
        return found
    named = dict(model.named_parameters())
    planned = {named[name]: one.role.is_matrix for name, one in model.plan.parameters.items()}
    return {one for one in named.values() if planned.get(one, one in found)}


def _generators(place: torch.device) -> list[torch.Generator]:
    """What draws the dropout."""
    if place.type != "cuda":
        return [torch.default_generator]
    index = torch.cuda.current_device() if place.index is None else place.index
    return [torch.default_generator, torch.cuda.default_generators[index]]


def _tell(model: nn.Module, step: int) -> None:
    """Tell a model and its encoder how many updates were made."""
    while isinstance(model, Model):
        model.training_step.fill_(step)
        if model.encoder is None:
            return
        model = model.encoder


def _norm(parameters: Iterable[nn.Parameter]) -> float:
    """Norm of the gradients of all of them together."""
    gradients: list[Tensor] = [one.grad for one in parameters if one.grad is not None]
    return nn.utils.get_total_norm(gradients).item() if gradients else 0.0
