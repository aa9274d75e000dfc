"""Models of JAX that are rewired in the tests: of Linen, of NNX, and a function of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

D, H = 16, 2


class Block(linen.Module):
    """A layer of Linen."""

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.LayerNorm(name="ln1")(x)
        x = x + linen.MultiHeadDotProductAttention(H, name="attn")(h, h)
        h = linen.LayerNorm(name="ln2")(x)
        return x + linen.Dense(D, name="down")(linen.gelu(linen.Dense(2 * D, name="up")(h)))


class Net(linen.Module):
    """Layers of Linen, and a norm after them."""

    @linen.compact
    def __call__(self, x: Array) -> Array:
        for number in range(2):
            x = Block(name=f"block_{number}")(x)
        return linen.LayerNorm(name="last")(x)


class NnxBlock(nnx.Module):
    """A layer of NNX, whose norms stand after its sums."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.ln1, self.ln2 = nnx.LayerNorm(D, rngs=rngs), nnx.LayerNorm(D, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(H, D, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(D, 2 * D, rngs=rngs), nnx.Linear(2 * D, D, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.ln1(x + self.attn(x))
        return self.ln2(x + self.down(nnx.gelu(self.up(x))))


class NnxNet(nnx.Module):
    """Layers of NNX."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])

    def __call__(self, x: Array) -> Array:
        for block in self.blocks:
            x = block(x)
        return x


def attention(w: Mapping[str, Array], x: Array) -> Array:
    """One head."""
    q, k, v = (x @ w[name] for name in "qkv")
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4) @ v @ w["o"]


def mlp(w: Mapping[str, Array], x: Array) -> Array:
    """An MLP."""
    return jax.nn.gelu(x @ w["u"]) @ w["d"]


def normed(x: Array, gain: Array, bias: Array | float = 0.0, eps: float = 1e-5) -> Array:
    """LayerNorm by its definition."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gain + bias


def function(w: Mapping[str, Any], x: Array) -> Array:
    """Pre-LN as a function of its weights, with gains of 1 + a vector."""
    for layer in w["layers"]:
        x = x + attention(layer, normed(x, 1 + layer["a"]))
        x = x + mlp(layer, normed(x, 1 + layer["b"]))
    return x


def weights() -> dict[str, Any]:
    """For the function."""
    rng = np.random.default_rng(0)
    shapes = {"a": (D,), "b": (D,), "u": (D, 2 * D), "d": (2 * D, D)} | dict.fromkeys("qkvo", (D, D))
    return {
        "layers": [
            {name: jnp.asarray(rng.normal(size=shape) * 0.3, jnp.float32) for name, shape in shapes.items()}
            for _ in range(2)
        ]
    }


def stream(tokens: int = 5) -> Array:
    """What the models are given."""
    return jax.random.normal(jax.random.key(0), (2, tokens, D))


def perturbed(tree: Any) -> Any:
    """The same weights with random vectors."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        one + 0.3 * jax.random.normal(key, one.shape) if one.ndim <= 1 else one
        for one, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def of(kind: str) -> tuple[Any, tuple[Any, ...]]:
    """A model of a kind, and arguments of its call."""
    if kind == "linen":
        return Net(), (perturbed(Net().init(jax.random.key(1), stream())), stream())
    if kind == "nnx":
        graph, state = nnx.split(NnxNet(nnx.Rngs(0)))
        return nnx.merge(graph, perturbed(state)), (stream(),)
    return function, (weights(), stream())
