"""Training as a practitioner does it: one model, one task, one recipe; it can be stopped and gone on with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from jax import Array

from normula.data import Batch, Task
from normula.data.batch import NOT_SCORED
from normula.data.course import follow
from normula.flax import nnx
from normula.flax.batch import loss, predict, states
from normula.flax.check import check_tree
from normula.flax.core import init
from normula.flax.measure import QUICK, THOROUGH, entropy_loss, length
from normula.flax.network import Network, network
from normula.flax.tree import Tree, leaves, put
from normula.record import Snapshot, Training
from normula.spec import Recipe, Spec

Observer: TypeAlias = Callable[[int, Network, Tree], None]


def train(
    what: Spec | nnx.Stack,
    task: Task,
    recipe: Recipe,
    *,
    looks: Sequence[int] = (),
    observe: Observer | None = None,
    state: bytes | None = None,
    until: int | None = None,
    seconds: float = math.inf,
    save: Callable[[bytes], None] | None = None,
    save_seconds: float = 60.0,
    device: str = "cpu",
) -> Training:
    """Train a network of a spec from its initial weights, or a stack from the weights it has.

    Args:
        what: what to train; a spec needs what the task asks for, as `task.spec` gives it. A stack changes in place.
        task: gives the batches; their order depends on the recipe's seed alone.
        recipe: how.
        looks: updates at which the stream and the gradient are looked at, and after which the held-out data are.
        observe: called with the number of updates made, the network and its parameters, before each update and at the
            end.
        state: of a training of the same arguments that was stopped, to go on from.
        until: stop after this many updates in all.
        seconds: stop when this much time was spent in updates, in all; the first one compiles.
        save: called with the state now and then, so that a training that is killed can go on.
        save_seconds: that pass between two calls.
        device: cpu, gpu, tpu ..., the first of its kind.

    Returns:
        The training; with a state to go on from where it was stopped. It ends early where a loss is not finite: the
        curve is then shorter, and its last value says what it became.

    Raises:
        ValueError: a state of another recipe, or of another network.
    """
    with jax.default_device(jax.devices("gpu" if device == "cuda" else device)[0]):
        net = what.network if isinstance(what, nnx.Stack) else network(what)
        params = what.params() if isinstance(what, nnx.Stack) else init(net)
        learner = _Learner(net, params, recipe)
        training = follow(
            learner,
            task,
            recipe,
            looks=looks,
            observe=None if observe is None else lambda step: observe(step, net, learner.params),
            state=state,
            until=until,
            seconds=seconds,
            save=save,
            save_seconds=save_seconds,
        )
    if isinstance(what, nnx.Stack):
        what.load(learner.params)
    return training


@dataclass(slots=True)
class _Learner:
    """A network, its parameters and the optimiser's state; and those after the update that was made ready.

    Attributes:
        program: a network of the same kind, which stands for all that share a compiled program.
        rule: what of the recipe is compiled.
    """

    net: Network
    params: Tree
    recipe: Recipe
    program: Network = field(init=False)
    rule: Recipe = field(init=False)
    key: Array = field(init=False)
    moments: Any = field(init=False)
    ready: tuple[Tree, Any] = field(init=False)

    def __post_init__(self) -> None:
        own, recipe = self.net, self.recipe
        self.program = network(_kind(own.spec), own.makers)
        self.rule = replace(recipe, steps=1, lr=1.0, warmup=0, shape="constant", batch=1, seed=0)
        self.key = jax.random.key(recipe.seed)
        self.moments = optimiser(recipe, 1.0, _decayed(own, self.params)).init(self.params)

    def loss(self, step: int, batch: Batch, rate: float) -> float:
        value, *ready = _update(
            self.program, self.params, self.moments, batch, *self._step(step), rate, recipe=self.rule
        )
        self.ready = tuple(ready)
        return float(value)

    def snapshot(self, step: int, batch: Batch) -> Snapshot:
        whole, layers, rms = _look(self.program, self.params, batch, *self._step(step), recipe=self.rule)
        return Snapshot(
            step=step,
            gradient=float(whole),
            gradients=tuple(np.asarray(layers).tolist()),
            rms=tuple(np.asarray(rms).tolist()),
        )

    def update(self) -> None:
        self.params, self.moments = self.ready

    def evaluate(self, step: int, batch: Batch) -> tuple[float, float]:
        value, accuracy = _evaluate(self.program, self.params, batch, jnp.asarray(step), recipe=self.rule)
        return float(value), float(accuracy)

    def state(self, course: str) -> bytes:
        content = {"params": self.params, "optimiser": serialization.to_state_dict(self.moments), "course": course}
        return serialization.msgpack_serialize(content)

    def load(self, state: bytes) -> str:
        content = serialization.msgpack_restore(state)
        check_tree(self.net, content["params"])
        self.params = jax.tree.map(jnp.asarray, content["params"])
        moments = serialization.from_state_dict(self.moments, content["optimiser"])
        self.moments = jax.tree.map(jnp.asarray, moments)
        course: str = content["course"]
        return course

    def _step(self, step: int) -> tuple[Array, Array]:
        """The step, and the key of the dropout."""
        return jnp.asarray(step), self.key


def _kind(spec: Spec) -> Spec:
    """The spec that stands for all whose programs are the same."""
    encoder = None if spec.encoder is None else _kind(spec.encoder)
    return replace(spec, seed=0, init="normal", encoder=encoder)


@partial(jax.jit, static_argnames=("network", "recipe"), compiler_options=THOROUGH)
def _update(
    network: Network,
    params: Tree,
    moments: Any,
    batch: Batch,
    step: Array,
    key: Array,
    rate: Array | float,
    *,
    recipe: Recipe,
) -> tuple[Array, Tree, Any]:
    """The loss, and the parameters and the optimiser's state after one update."""
    value, gradients = jax.value_and_grad(_loss)(params, network, batch, step, key, recipe)
    updates, moments = optimiser(recipe, rate, _decayed(network, params)).update(gradients, moments, params)
    return value, optax.apply_updates(params, updates), moments


@partial(jax.jit, static_argnames=("network", "recipe"), compiler_options=QUICK)
def _look(
    network: Network, params: Tree, batch: Batch, step: Array, key: Array, *, recipe: Recipe
) -> tuple[Array, Array, Array]:
    """Norm of the gradient, of all and of each layer; RMS of the stream before the first layer and after each."""
    gradients = jax.grad(_loss)(params, network, batch, step, key, recipe)
    layers = [
        jax.vmap(_whole)(gradients[group.name]) if gradients.get(group.name) else jnp.zeros(group.count)
        for group in network.groups
    ]
    stream = states(network, params, batch, training_step=step, dtype=_dtype(recipe)).stream
    square = jnp.square(stream.astype(jnp.promote_types(stream.dtype, jnp.float32)))
    rms = jnp.sqrt(square.mean(axis=range(1, stream.ndim)))
    return _whole(gradients), jnp.concatenate(layers), rms


@partial(jax.jit, static_argnames=("network", "recipe"), compiler_options=THOROUGH)
def _evaluate(network: Network, params: Tree, batch: Batch, step: Array, *, recipe: Recipe) -> tuple[Array, Array]:
    """Loss and accuracy, without dropout."""
    logits = predict(network, params, batch, training_step=step, dtype=_dtype(recipe))
    targets = jnp.asarray(batch.targets)
    return entropy_loss(logits, targets), (logits.argmax(axis=-1) == targets).mean(where=targets != NOT_SCORED)


def _loss(params: Tree, network: Network, batch: Batch, step: Array, key: Array, recipe: Recipe) -> Array:
    """The training loss, with its dropout."""
    key = jax.random.fold_in(key, step)
    return loss(network, params, batch, training_step=step, deterministic=False, key=key, dtype=_dtype(recipe))


def optimiser(recipe: Recipe, rate: Array | float, decayed: Tree | None = None) -> optax.GradientTransformation:
    """The recipe's optimiser at a learning rate, with every setting written out.

    Args:
        recipe: which, and its settings.
        rate: of this update.
        decayed: for each parameter whether the weight decay is its; None for none.
    """
    decay = optax.add_decayed_weights(recipe.weight_decay, mask=decayed) if recipe.weight_decay else optax.identity()
    parts = [] if recipe.clip is None else [_clipped(recipe.clip)]
    parts += [decay] if recipe.optimiser != "adamw" else []
    if recipe.optimiser != "sgd":
        parts.append(optax.scale_by_adam(b1=recipe.beta1, b2=recipe.beta2, eps=1e-8))
    parts += [decay] if recipe.optimiser == "adamw" else []
    return optax.chain(*parts, optax.scale_by_learning_rate(rate))


def _clipped(most: float) -> optax.GradientTransformation:
    """Gradients of a norm of at most this, all together; as PyTorch finds the factor."""

    def scaled(gradients: Tree, params: Tree | None) -> Tree:
        factor = jnp.minimum(1.0, most / (_whole(gradients) + 1e-6))
        return jax.tree.map(lambda one: one * factor, gradients)

    return optax.stateless(scaled)


def _decayed(network: Network, params: Tree) -> Tree:
    """Whether each parameter multiplies vectors: as the plan says, and in given sublayers by its shape."""
    found: Tree = jax.tree.map(lambda array: array.ndim > 2, params)  # given sublayers are stacked, the layer first
    for leaf in leaves(network):
        put(found, leaf.path, leaf.parameter.role.is_matrix)
    return found


def _whole(tree: Any) -> Array:
    """Norm over all arrays of a tree."""
    return length(jnp.stack([length(array) for array in jax.tree.leaves(tree)]))


def _dtype(recipe: Recipe) -> Any:
    return jnp.bfloat16 if recipe.dtype == "bfloat16" else None
