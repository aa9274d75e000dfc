"""Steps of a plan run on JAX arrays: traced once by whoever compiles them, the formula's own statements remain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from normula.flax.attention import attention
from normula.flax.context import Context
from normula.flax.mlp import experts, mlp
from normula.flax.network import Group, Network, inside
from normula.flax.norms import norm
from normula.flax.operators import FORMS, Form
from normula.flax.tree import Path, at
from normula.formula.run import Functions, Runner, depth_numbers
from normula.formula.tree import Call, Expr, Gain
from normula.formula.words import NORMS
from normula.spec import Step
from normula.spec.plan import norm_kind

FUNCTIONS: Functions = {
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "ramp": lambda z: jnp.clip(z, 0.0, 1.0),
}


class StepRunner(Runner):
    """Runs one step with its parameters.

    Args:
        network: the whole.
        step: what runs.
        own: the tree in which the step's parameters are.
        depth: how many folders of their paths lie outside that tree.
        layer: number of the layer, from 0, for the sublayers that came as modules.
        numbers: values of the numbers that depend on depth, in the order of `depth_numbers`; None to compute them
            from the step's own symbols.
        around: what else a sublayer reads.
        places: number of the step's first sublayer in its layer.
    """

    def __init__(
        self,
        network: Network,
        step: Step,
        own: Mapping[str, Any],
        depth: int,
        layer: int,
        numbers: Sequence[Array] | None,
        around: Context,
        places: int = 0,
    ) -> None:
        symbols: dict[str, Any] = {**step.symbols, "step": around.training_step}
        super().__init__(symbols, self._call, self._gain, FUNCTIONS)
        self.network, self.step, self.own, self.depth, self.layer = network, step, own, depth, layer
        self.around, self.places = around, {call.index: places + i for i, call in enumerate(step.sublayers)}
        parts = depth_numbers(step.formula.tree)
        self.numbers = {} if numbers is None else dict(zip(map(id, parts), numbers, strict=True))

    def value(self, expr: Expr, names: Mapping[str, Any]) -> Any:
        """One expression; a number that depends on depth has been computed before."""
        known = self.numbers.get(id(expr))
        return super().value(expr, names) if known is None else known

    def path(self, index: int) -> Path:
        """Where in the tree a call or gain has its parameters."""
        return inside(self.step, index)[self.depth :]

    def _call(self, what: Call, x: Array) -> Array:
        if what.word == "stop":
            return jax.lax.stop_gradient(x)
        own = at(self.own, self.path(what.index))
        return self.norm(what, x, own) if what.word in NORMS else self.sublayer(what, x, own)

    def norm(self, what: Call, x: Array, own: Any) -> Array:
        """A norm on the stream or a branch."""
        spec = self.network.spec
        return norm(norm_kind(spec, what.word), x, own, spec.eps, spec.variance)

    def sublayer(self, what: Call, x: Array, own: Any) -> Array:
        """A sublayer."""
        spec, kind, place = self.network.spec, self.step.kind(what), self.places[what.index]
        if kind in self.network.given:
            key = self.around.key
            key = None if key is None else jax.random.fold_in(key, 3 * place)
            y = self.network.given[kind][self.layer].apply(own, x, key)
            if y.shape != x.shape:
                raise ValueError(f"modules[{kind!r}] makes {y.shape} of {x.shape}; a sublayer keeps the shape")
            return y.astype(x.dtype)
        if kind == "moe":
            return experts(spec, x, own, self.around, place)
        inner = self.step.inner(what)
        if kind == "mlp":
            return mlp(spec, x, own, inner, self.around, place)
        return attention(spec, x, own, inner, self.around, place, crosses=kind == "cross")

    def _gain(self, what: Gain) -> Array:
        gain: Array = at(self.own, self.path(what.index))
        return gain.astype(self.around.dtype)


def run_group(
    network: Network,
    group: Group,
    own: Mapping[str, Any],
    numbers: Sequence[Sequence[Array]],
    streams: dict[str, Any],
    around: Context,
    runner: type[StepRunner] = StepRunner,
) -> dict[str, Any]:
    """The steps of one layer of a group."""
    places = 0
    for step, values in zip(group.steps, numbers, strict=True):
        one = runner(network, step, own, 2, group.first, values, around, places)
        streams = run_inside(network, one, streams)
        places += len(step.sublayers)
    return streams


def run_inside(network: Network, runner: StepRunner, streams: dict[str, Any]) -> dict[str, Any]:
    """A step as it is, or between the reading and the writing of a registered operator."""
    form, tree = operator_form(network), runner.step.formula.tree
    if form is None:
        return runner.run(tree, streams)
    folder = tuple(runner.step.prefix.split("."))[runner.depth :]
    state = streams["x"]
    y = runner.run(tree, {"x": form.read(state, at(runner.own, (*folder, "read")))})["x"]
    return {"x": form.write(state, y, at(runner.own, (*folder, "write")))}


def operator_form(network: Network) -> Form | None:
    """The registered operator of a network's placement."""
    name = network.spec.placed.operator
    return None if name is None else FORMS[name]
