"""The skin for Flax NNX: a stack, a residual block around any module, and the norm by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import ArrayLike

from normula.flax import core
from normula.flax.block import Block, block
from normula.flax.check import TreeError, check_tree
from normula.flax.network import Factory, Network, network
from normula.flax.norms import norm
from normula.flax.tree import Tree, leaves
from normula.formula import Formula
from normula.spec import Spec
from normula.spec.kinds import NORM_KINDS
from normula.spec.stamp import stamp


class Stack(nnx.Module):
    """A stack of layers made from a spec, as an NNX module.

        >>> import jax.numpy as jnp
        >>> stack = Stack(Spec(placement="pre", layers=2, width=8, heads=2), rngs=nnx.Rngs(0))
        >>> stack(jnp.zeros((1, 3, 8))).shape
        (1, 3, 8)

    The parameters of its layers are stacked, the layer first, and run in a scan.

    Args:
        spec: what it is.
        modules: for sublayers of your own, a function from the layer (from 0) to an NNX or Linen module or a function.
        rngs: of the initial weights (`params`) and the dropout; None for the same initial numbers as every other
            framework's, by the spec's seed.
        deterministic: whether nothing is dropped; `train()` and `eval()` set it, and it can be given in the call.
        dtype: that values are computed in; None for that of the parameters. Statistics are float32 or wider.
        param_dtype: of the parameters.
        partitioned: whether parameters have `out_sharding`, a name for each axis: layers, embed, heads, mlp, vocab,
            experts.
        unroll: run the layers one after another instead of in a scan.
        remat: compute a layer again in the backward pass: `full`, or the name of one of `jax.checkpoint_policies`.
    """

    framework: ClassVar[str] = "nnx"

    def __init__(
        self,
        spec: Spec,
        modules: Mapping[str, Factory] | None = None,
        *,
        rngs: nnx.Rngs | None = None,
        deterministic: bool | None = None,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        partitioned: bool = False,
        unroll: bool = False,
        remat: str | None = None,
    ) -> None:
        self.spec, self.dtype, self.unroll, self.remat = spec, dtype, unroll, remat
        self.network: Network = nnx.static(network(spec, modules))
        self.deterministic = deterministic
        self.rngs = nnx.data(rngs) if spec.dropout else None
        tree = core.init(self.network, key=None if rngs is None else rngs.params(), dtype=param_dtype)
        names = {leaf.path: leaf.axes for leaf in leaves(self.network)} if partitioned else {}
        self.parts = tuple(tree)
        for name, part in tree.items():
            setattr(self, name, nnx.data(_variables(part, names, (name,))))

    def __call__(
        self,
        inputs: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        source: ArrayLike | None = None,
        source_mask: ArrayLike | None = None,
        training_step: ArrayLike = 0,
        deterministic: bool | None = None,
    ) -> Array:
        """Run the stack; arguments as in Linen's."""
        if deterministic is None:
            deterministic = self.deterministic
        drops = self.spec.dropout > 0 and deterministic is False
        return core.apply(
            self.network,
            self.params(),
            inputs,
            mask,
            source=source,
            source_mask=source_mask,
            training_step=training_step,
            deterministic=deterministic,
            key=self.rngs.dropout() if drops and self.rngs is not None else None,
            dtype=self.dtype,
            unroll=self.unroll,
            remat=self.remat,
        )

    def params(self) -> Tree:
        """The parameters as a tree of arrays, as Linen has them under `params`."""
        return {name: _values(getattr(self, name)) for name in self.parts}

    def load(self, params: Tree, *, formula: str | None = None) -> None:
        """Put in other parameters.

        Args:
            params: a tree of arrays.
            formula: what they were made by, where it is known: `stamp(spec)` of the other stack.

        Raises:
            TreeError: parameters of another network.
        """
        check_tree(self.network, params)
        if formula is not None and formula != stamp(self.spec):
            raise TreeError(f"these parameters are of {formula} and this model is {stamp(self.spec)}")
        for name in self.parts:
            _set(getattr(self, name), params[name])


class Norm(nnx.Module):
    """A norm over the features of one token; (..., D) to (..., D).

    Args:
        width: D.
        kind: layernorm, rmsnorm, l2norm, dyt, derf or none.
        eps: epsilon under the root.
        variance: how LayerNorm finds it: two-pass, or one-pass as in `flax.nnx.LayerNorm`.
    """

    def __init__(self, width: int, kind: str = "layernorm", *, eps: float = 1e-6, variance: str = "two-pass") -> None:
        self.kind, self.eps, self.variance = kind, eps, variance
        self.names = tuple("scale" if one.name == "weight" else one.name for one in NORM_KINDS[kind].parameters)
        for name, parameter in zip(self.names, NORM_KINDS[kind].parameters, strict=True):
            setattr(self, name, nnx.Param(jnp.full(parameter.shape(width), parameter.start)))

    def __call__(self, x: Array) -> Array:
        """The pass."""
        own = {name: getattr(self, name)[...] for name in self.names}
        return norm(self.kind, x, own, self.eps, self.variance)


class Residual(nnx.Module):
    """A formula around an NNX module: one residual step, or a layer of several modules.

        >>> import jax.numpy as jnp
        >>> print(Residual("norm(x + f(x))", lambda z: 2 * z, width=2)(jnp.array([[1.0, 3.0]])).round(3))
        [[-1.  1.]]

    Args:
        formula: what it computes, such as "norm(x + f(x))", or the name of a placement.
        f: the sublayer, a module or a function; for a formula that names several, a mapping from their words.
        width: D.
        norm, eps, variance: of the norms.
    """

    def __init__(
        self,
        formula: str | Formula,
        f: Any,
        *,
        width: int,
        norm: str = "layernorm",
        eps: float = 1e-6,
        variance: str = "two-pass",
    ) -> None:
        made = block(formula, f)
        self.step = nnx.static(made.step)
        self.formula = str(made.step.formula)
        self.sublayers = nnx.data(dict(made.sublayers))

        def one_norm(kind: str, name: str, value: Array) -> Array:
            kind = norm if kind == "norm" else kind
            setattr(self, name, Norm(width, kind, eps=eps, variance=variance))
            return value

        def one_gain(name: str, start: float, shape: tuple[int, ...]) -> Array:
            setattr(self, name, nnx.Param(jnp.full(shape, start)))
            return jnp.full(shape, start)

        made.run(jnp.zeros(width), one_norm, lambda word, value: value, one_gain)

    def __call__(self, x: Array) -> Array:
        """(..., D) to (..., D)."""
        made = Block(self.step, self.sublayers)
        return made.run(
            x,
            lambda kind, name, value: getattr(self, name)(value),
            lambda word, value: self.sublayers[word](value),
            lambda name, start, shape: getattr(self, name)[...],
        )


def _variables(tree: Any, names: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    """The tree with a Param for every array."""
    if isinstance(tree, Mapping):
        return {name: _variables(part, names, (*path, name)) for name, part in tree.items()}
    if path not in names:
        return nnx.Param(tree)
    has_mesh = not jax.sharding.get_abstract_mesh().empty  # without one, names are names and nothing is placed yet
    return nnx.Param(tree, out_sharding=names[path], eager_sharding=None if has_mesh else False)


def _values(tree: Any) -> Any:
    """The tree with the array of every Param."""
    return jax.tree.map(lambda one: one[...], tree, is_leaf=lambda one: isinstance(one, nnx.Variable))


def _set(variables: Any, tree: Any) -> None:
    """Put the arrays of a tree into the Params of another."""
    if isinstance(variables, nnx.Variable):
        variables.set_value(jnp.asarray(tree))  # in its own type, and where it lies
        return
    for name, part in variables.items():
        _set(part, tree[name])
