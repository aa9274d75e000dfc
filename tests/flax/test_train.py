"""Training in JAX beyond what both frameworks do: compiled once, NNX stacks, states of other networks."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from normula.data import task
from normula.flax import nnx, train
from normula.flax.train import _update
from normula.spec import Recipe, Spec

COPY = task("copy")
RECIPE = Recipe(steps=3, lr=1e-2, batch=4)


def spec(**fields: Any) -> Spec:
    return COPY.spec(**(dict(layers=2, width=8, heads=2) | fields))


def test_rates_seeds_and_initial_weights_share_one_compiled_program() -> None:
    train(spec(), COPY, RECIPE)
    before = _update._cache_size()
    for init, other in (("normal", dict(lr=1e-3)), ("xavier", dict(warmup=2, shape="cosine", seed=3, steps=4))):
        train(spec(init=init, seed=2), COPY, replace(RECIPE, **other))
    assert _update._cache_size() == before


def test_a_stack_learns_in_place() -> None:
    stack, seen = nnx.Stack(spec()), []
    found = train(stack, COPY, RECIPE, observe=lambda step, net, params: seen.append(params))
    assert found.curve == train(spec(), COPY, RECIPE).curve
    assert jax.tree.all(jax.tree.map(jnp.array_equal, stack.params(), seen[-1]))
    assert not jax.tree.all(jax.tree.map(jnp.array_equal, stack.params(), seen[0]))


@pytest.mark.negative
@pytest.mark.parametrize("other", [dict(layers=3), dict(width=16), dict(bias=False)])
def test_a_state_of_another_network_is_refused(other: dict[str, Any]) -> None:
    state = train(spec(), COPY, RECIPE, until=1).state
    with pytest.raises(ValueError, match="parameters"):
        train(spec(**other), COPY, RECIPE, state=state)
