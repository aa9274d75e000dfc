"""The same parameters under two formulas: whether they fit both, and how far apart the two functions are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx as flax_nnx
from jax import Array

from normula.flax import linen, nnx
from normula.flax.check import TreeError
from normula.formula import Formula
from normula.spec.stamp import stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What moving parameters from one formula to another does.

    Attributes:
        first, second: the two formulas.
        relative: |second - first| / |first|, over all of the output.
    """

    first: str
    second: str
    relative: float

    def __str__(self) -> str:
        """One line."""
        if self.relative == 0.0:
            return f"The same parameters fit {self.first} and {self.second}, and both compute the same on this input."
        return (
            f"The same parameters fit {self.first} and {self.second}, and make another function: on this input the "
            f"outputs differ by {self.relative:.2g} of their size."
        )


def difference(first: Any, second: Any, *inputs: Array, params: Mapping[str, Any] | None = None) -> Difference:
    """Run two modules on the same parameters and inputs.

        >>> import jax, jax.numpy as jnp
        >>> from flax import linen as nn
        >>> pre, post = (linen.Residual(text, nn.Dense(2)) for text in ("x + f(norm(x))", "norm(x + f(x))"))
        >>> x = jnp.array([[1.0, 3.0]])
        >>> params = pre.init(jax.random.key(0), x)["params"]
        >>> print(difference(pre, post, x, params=params))
        The same parameters fit x + f(norm(x)) and norm(x + f(x)), and make another function: ...

    Args:
        first, second: two Linen modules, or two NNX modules.
        inputs: what both are called with.
        params: the parameters of Linen modules; NNX modules take those of the first.

    Raises:
        TreeError: the parameters of one do not fit the other.
    """
    if isinstance(first, nn.Module):
        if params is None:
            raise ValueError("Linen modules hold no parameters; give params=variables['params']")
        outputs: list[Any] = [module.apply({"params": params}, *inputs) for module in (first, second)]
    else:
        state = flax_nnx.state(first, flax_nnx.Param)
        moved = flax_nnx.clone(second)
        own = flax_nnx.state(moved, flax_nnx.Param)
        if jax.tree.map(jnp.shape, flax_nnx.to_pure_dict(state)) != jax.tree.map(jnp.shape, flax_nnx.to_pure_dict(own)):
            raise TreeError(f"the parameters of {_formula(first)} do not fit {_formula(second)}")
        flax_nnx.update(moved, state)
        outputs = [first(*inputs), moved(*inputs)]
    return Difference(
        first=_formula(first),
        second=_formula(second),
        relative=float(jnp.linalg.norm(outputs[1] - outputs[0]) / jnp.linalg.norm(outputs[0])),
    )


def _formula(module: Any) -> str:
    """What a module computes, or its class where it has no formula."""
    if isinstance(module, linen.Stack | nnx.Stack):
        return stamp(module.spec)
    formula = getattr(module, "formula", None)
    return type(module).__name__ if formula is None else str(Formula(str(formula)))
