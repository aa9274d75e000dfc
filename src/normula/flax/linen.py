"""The skin for Flax Linen: a stack, a residual block around any module, and the norm by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike

from normula.flax import core
from normula.flax.block import Block, block
from normula.flax.check import check_formula
from normula.flax.network import Factory, Network, network
from normula.flax.norms import norm
from normula.flax.tree import Tree, leaves, put
from normula.formula import Formula
from normula.spec import Spec
from normula.spec.kinds import NORM_KINDS
from normula.spec.stamp import stamp

FORMULA = "formula"
"""The collection that says which formula parameters are of."""


class Stack(nn.Module):
    """A stack of layers made from a spec, as a Linen module.

        >>> import jax, jax.numpy as jnp
        >>> stack = Stack(Spec(placement="pre", layers=2, width=8, heads=2))
        >>> x = jnp.zeros((1, 3, 8))
        >>> variables = stack.init(jax.random.key(0), x)
        >>> stack.apply(variables, x).shape
        (1, 3, 8)

    The parameters of its layers are stacked, the layer first, and run in a scan. Beside `params` the variables have a
    collection `formula`, one number whose name is the formula: a stack of another formula refuses them.

    Attributes:
        spec: what it is.
        modules: for sublayers of your own, a function from the layer (from 0) to a Linen or NNX module or a function.
        deterministic: whether nothing is dropped; it can be given in the call instead.
        dtype: that values are computed in; None for that of the parameters. Statistics are float32 or wider.
        param_dtype: of the parameters.
        partitioned: whether parameters are `nn.Partitioned`, with a name for each axis: layers, embed, heads, mlp,
            vocab, experts.
        unroll: run the layers one after another instead of in a scan.
        remat: compute a layer again in the backward pass: `full`, or the name of one of `jax.checkpoint_policies`.
    """

    spec: Spec
    modules: Mapping[str, Factory] | None = None
    deterministic: bool | None = None
    dtype: Any = None
    param_dtype: Any = jnp.float32
    partitioned: bool = False
    unroll: bool = False
    remat: str | None = None

    framework: ClassVar[str] = "linen"

    def __post_init__(self) -> None:
        super().__post_init__()
        network(self.spec, self.modules)  # what cannot be built is refused here, not at the first call

    @property
    def network(self) -> Network:
        """What runs, as functions of the parameters."""
        return network(self.spec, self.modules)

    @nn.compact
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
        """Run the stack.

        Args:
            inputs: vectors (B, T, D); with a vocabulary ids (B, T); with features values (B, T, P).
            mask: (B, T), true where a token is real; None where all are.
            source, source_mask: what goes into the encoder, and which of its tokens are real.
            training_step: updates made so far, for a formula that reads `step`.
            deterministic: whether nothing is dropped; with dropout, False needs rngs={"dropout": key}.

        Returns:
            (B, T, D); logits (B, T, V) with a vocabulary; (B, classes) for a classifier.
        """
        if deterministic is None:
            deterministic = self.deterministic
        if self.is_initializing():
            deterministic = True
        params = self._params()
        drops = self.spec.dropout > 0 and deterministic is False
        return core.apply(
            self.network,
            params,
            inputs,
            mask,
            source=source,
            source_mask=source_mask,
            training_step=training_step,
            deterministic=deterministic,
            key=self.make_rng("dropout") if drops and self.has_rng("dropout") else None,
            dtype=self.dtype,
            unroll=self.unroll,
            remat=self.remat,
        )

    def start(self) -> Tree:
        """The variables with the same initial numbers as every other framework's, by the spec's seed."""
        params = core.init(self.network, dtype=self.param_dtype)
        return {"params": self._boxed(params), FORMULA: {stamp(self.spec): jnp.zeros(())}}

    def _params(self) -> Tree:
        """The parameters from the variables; drawn from the key of `params` where there are none yet."""
        own = stamp(self.spec)
        carried = self.variables.get(FORMULA, {})
        for formula in carried:
            check_formula(self.network, formula)
        if self.is_initializing():
            self.variable(FORMULA, own, lambda: jnp.zeros(()))
            drawn = self._boxed(core.init(self.network, key=self.make_rng("params"), dtype=self.param_dtype))
            return {name: self.param(name, lambda key, name=name: drawn[name]) for name in drawn}
        params = nn.meta.unbox(self.variables.get("params", {}))
        return dict(params)

    def _boxed(self, params: Tree) -> Tree:
        if not self.partitioned:
            return params
        boxed = jax.tree.map(lambda array: array, params)
        for leaf in leaves(self.network):
            value = params
            for part in leaf.path:
                value = value[part]
            put(boxed, leaf.path, nn.Partitioned(value, names=leaf.axes))
        return boxed


class Norm(nn.Module):
    """A norm over the features of one token; (..., D) to (..., D).

    Attributes:
        kind: layernorm, rmsnorm, l2norm, dyt, derf or none.
        eps: epsilon under the root.
        variance: how LayerNorm finds it: two-pass, or one-pass as in `flax.linen.LayerNorm`.
    """

    kind: str = "layernorm"
    eps: float = 1e-6
    variance: str = "two-pass"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """The pass."""
        own = {}
        for parameter in NORM_KINDS[self.kind].parameters:
            name = "scale" if parameter.name == "weight" else parameter.name
            start, shape = nn.initializers.constant(parameter.start), parameter.shape(x.shape[-1])
            own[name] = self.param(name, start, shape)
        return norm(self.kind, x, own, self.eps, self.variance)


class Residual(nn.Module):
    """A formula around a Linen module: one residual step, or a layer of several modules.

        >>> import jax, jax.numpy as jnp
        >>> block = Residual("x + f(norm(x))", lambda z: 2 * z)
        >>> x = jnp.array([[1.0, 3.0]])
        >>> print(block.apply(block.init(jax.random.key(0), x), x).round(3))
        [[-1.  5.]]

    Attributes:
        formula: what it computes, such as "norm(x + f(x))", or the name of a placement.
        f: the sublayer, a module or a function; for a formula that names several, a mapping from their words.
        norm, eps, variance: of the norms.
    """

    formula: str | Formula
    f: Any
    norm: str = "layernorm"
    eps: float = 1e-6
    variance: str = "two-pass"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """(..., D) to (..., D)."""
        made: Block = block(self.formula, self.f)

        def one_norm(kind: str, name: str, value: Array) -> Array:
            y: Array = Norm(self.norm if kind == "norm" else kind, self.eps, self.variance, name=name)(value)
            return y

        def one_gain(name: str, start: float, shape: tuple[int, ...]) -> Array:
            gain: Array = self.param(name, nn.initializers.constant(start), shape)
            return gain

        return made.run(x, one_norm, lambda word, value: _sublayer(made, word)(value), one_gain)


def _sublayer(made: Block, word: str) -> Callable[[Array], Array]:
    sublayer: Callable[[Array], Array] = made.sublayers[word]
    return sublayer
