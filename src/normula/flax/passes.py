"""Measurements of a spec or a module: over seeds side by side, and over the first steps of a short training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from normula.data import Task, random_direction, random_input
from normula.flax import linen, nnx
from normula.flax.core import init
from normula.flax.measure import Case, direction_loss, entropy_loss, measure
from normula.flax.network import Network, network
from normula.flax.train import train
from normula.flax.tree import Tree
from normula.record import Pass
from normula.spec import Recipe, Spec

Report = Callable[[], None]
Model = (linen.Stack, nnx.Stack)
"""What can be measured besides a spec: a bound Linen module, an NNX module."""


def passes(
    what: Any,
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
        what: a spec, which is built for each seed; or a module, measured with the weights that it has.
        seeds: of weights (for a spec), input and probe.
        probe: `random` (a random direction of length 1 in the output), `sum`, or `loss` (needs a task).
        batch, tokens: B and T of a random input.
        inputs: (B, T, D) vectors or (B, T) ids instead of a random input.
        task: gives real tokens, and the batches to train on.
        training_steps: numbers of updates after which to measure.
        lr, warmup: of the short training run.
        report: called after each pass.

    Raises:
        ValueError: a Linen module without its variables.
    """
    spec: Spec = what if isinstance(what, Spec) else what.spec
    loss = entropy_loss if probe == "loss" else direction_loss
    steps = sorted(training_steps)
    found: list[Pass] = []

    def case(net: Network, seed: int, step: int, params: Tree) -> Case:
        x, targets = _input(spec, seed, batch, tokens, inputs, task)
        target = targets if probe == "loss" else _direction(net, probe, seed, x)
        return Case(seed=seed, training_step=step, params=params, inputs=x, target=jnp.asarray(target))

    def look(net: Network, cases: Sequence[Case]) -> None:
        found.extend(measure(net, cases, loss, is_loss=probe == "loss"))
        for _ in cases:
            report()

    if not isinstance(what, Spec):
        net, params = of_module(what)
        look(net, [case(net, seed, 0, params) for seed in seeds])
    elif steps == [0]:
        net = network(spec)
        look(net, [case(net, seed, 0, init(net, seed=seed)) for seed in seeds])
    else:
        assert task is not None
        for seed in seeds:

            def observe(step: int, net: Network, params: Tree, seed: int = seed) -> None:
                if step in steps:
                    look(net, [case(net, seed, step, params)])

            recipe = Recipe(steps=steps[-1], lr=lr, warmup=warmup, seed=seed)
            train(replace(spec, seed=seed), task, recipe, observe=observe)
    return tuple(found)


def of_module(module: Any) -> tuple[Network, Tree]:
    """A module's network and parameters.

    Raises:
        ValueError: a Linen module that is not bound to its variables.
    """
    if isinstance(module, nnx.Stack):
        return module.network, module.params()
    params = module.variables.get("params", {}) if module.scope is not None else None
    if not params:
        raise ValueError("a Linen module holds no parameters; bind it to its variables: module.bind(variables)")
    return module.network, dict(jax.tree.map(jnp.asarray, params))


def _input(spec: Spec, seed: int, batch: int, tokens: int, inputs: Any, task: Task | None) -> tuple[Any, Any]:
    """What goes into the network, and what should come out where a task says it."""
    if inputs is not None:
        return jnp.asarray(np.asarray(inputs), int if spec.vocab is not None else float), None
    if task is not None:
        data = next(task.batches(seed + 1000, batch))  # not the first batch that training sees
        return jnp.asarray(data.inputs), jnp.asarray(data.targets)
    return jnp.asarray(random_input(spec, seed, batch, tokens), int if spec.vocab is not None else float), None


def _direction(net: Network, probe: str, seed: int, x: Any) -> Any:
    """What the output is multiplied by: ones, or a random direction."""
    out = net.spec.classes or net.spec.vocab or net.spec.width
    shape = (x.shape[0], out) if net.spec.classes else (*x.shape[:2], out)
    return np.ones(shape) if probe == "sum" else random_direction(shape, seed)
