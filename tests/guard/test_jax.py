"""Models of JAX: Linen, NNX and functions of parameters, in files and in folders of Orbax."""

from pathlib import Path
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import normula as nm
from normula import guard

X = jax.random.normal(jax.random.key(0), (2, 5, 16))


class Net(linen.Module):
    """Two layers, pre- or post-norm, with the same names."""

    pre: bool
    eps: float = 1e-6

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for number in range(2):
            n1, n2 = (linen.LayerNorm(epsilon=self.eps, name=f"n{which}{number}") for which in "ab")
            attn = linen.MultiHeadDotProductAttention(2, name=f"attn{number}")
            up, down = linen.Dense(32, name=f"up{number}"), linen.Dense(16, name=f"down{number}")
            if self.pre:
                x = x + attn(n1(x))
                x = x + down(linen.gelu(up(n2(x))))
            else:
                x = n1(x + attn(x))
                x = n2(x + down(linen.gelu(up(x))))
        return x


def variables(net: Net, seed: int) -> Any:
    """Parameters as training leaves them."""
    start = net.init(jax.random.key(seed), X)
    return jax.tree.map(lambda one: one + 0.2 * jax.random.normal(jax.random.key(seed + 1), one.shape), start)


def equal(one: Any, other: Any) -> bool:
    return bool(jax.tree.all(jax.tree.map(lambda a, b: jnp.array_equal(a, b), one, other)))


@pytest.mark.parametrize("name", ["a.safetensors", "folder"])
def test_a_linen_module_comes_back(name: str, tmp_path: Path) -> None:
    net = Net(pre=True)
    saved, other = variables(net, 1), variables(net, 3)
    stamp = guard.save(net, tmp_path / name, (saved, X))
    assert stamp.formula == "2 x (x = x + attn(norm(x)); x = x + mlp(norm(x)))"
    assert equal(guard.load(net, tmp_path / name, (other, X)).tree, saved)
    assert equal(guard.load(net.bind(other), tmp_path / name).tree, saved)
    guard.verify(net.bind(saved), tmp_path / name)


@pytest.mark.negative
@pytest.mark.parametrize("name", ["a.safetensors", "folder"])
@pytest.mark.parametrize(
    ("other", "words"), [(Net(pre=False), "x = norm(x + attn(x))"), (Net(pre=True, eps=1e-5), "eps")]
)
def test_another_linen_module_is_refused(name: str, other: Net, words: str, tmp_path: Path) -> None:
    net = Net(pre=True)
    guard.save(net, tmp_path / name, (variables(net, 1), X))
    with pytest.raises(guard.WeightsError) as refusal:
        guard.load(other, tmp_path / name, (variables(other, 2), X))
    assert words in str(refusal.value)


def test_an_nnx_module_takes_its_weights_in(tmp_path: Path) -> None:
    spec = nm.Spec(placement="pre", layers=2, width=8, heads=2)
    saved, other = nm.build(spec, "nnx"), nm.build(nm.Spec(placement="pre", layers=2, width=8, heads=2, seed=4), "nnx")
    guard.save(saved, tmp_path / "a.safetensors")
    assert guard.load(other, tmp_path / "a.safetensors").notes == ()
    x = jnp.ones((1, 3, 8))
    np.testing.assert_array_equal(saved(x), other(x))
    guard.verify(other, tmp_path / "a.safetensors")


@pytest.mark.negative
def test_an_nnx_module_that_is_refused_is_as_it_was(tmp_path: Path) -> None:
    saved, other = (
        nm.build(nm.Spec(placement="pre", layers=2, width=8, heads=2, eps=eps), "nnx") for eps in (1e-5, 1e-6)
    )
    guard.save(saved, tmp_path / "a.safetensors")
    before = jax.tree.map(jnp.array, nnx.to_pure_dict(nnx.state(other, nnx.Param)))
    with pytest.raises(guard.WeightsError, match="eps"):
        guard.load(other, tmp_path / "a.safetensors")
    assert equal(before, nnx.to_pure_dict(nnx.state(other, nnx.Param)))


def mlp_stack(params: Any, x: Any, *, pre: bool = True) -> Any:
    """A stack as a function of its parameters."""

    def norm(gain: Any, x: Any) -> Any:
        return gain * (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    for one in params:
        if pre:
            x = x + jnp.tanh(norm(one["g"], x) @ one["up"]) @ one["down"]
        else:
            x = norm(one["g"], x + jnp.tanh(x @ one["up"]) @ one["down"])
    return x


def test_a_function_of_its_parameters(tmp_path: Path) -> None:
    def params(seed: int) -> Any:
        keys = jax.random.split(jax.random.key(seed), (3, 3))
        return [
            {
                "g": 1 + 0.3 * jax.random.normal(row[0], (16,)),
                "up": 0.3 * jax.random.normal(row[1], (16, 32)),
                "down": 0.3 * jax.random.normal(row[2], (32, 16)),
            }
            for row in keys
        ]

    guard.save(mlp_stack, tmp_path / "a.safetensors", (params(0), X))
    assert equal(guard.load(mlp_stack, tmp_path / "a.safetensors", (params(1), X)).tree, params(0))
    with pytest.raises(guard.WeightsError, match="saved as"):
        guard.load(lambda p, x: mlp_stack(p, x, pre=False), tmp_path / "a.safetensors", (params(1), X))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_numbers_in_the_file(dtype: str, tmp_path: Path) -> None:
    net = Net(pre=True)
    guard.save(net, tmp_path / "a.safetensors", (variables(net, 1), X), dtype=dtype)
    guard.load(net, tmp_path / "a.safetensors", (variables(net, 5), X))


def test_a_folder_that_was_left_aside_by_a_kill_is_found(tmp_path: Path) -> None:
    net = Net(pre=True)
    saved = variables(net, 1)
    guard.save(net, tmp_path / "folder", (saved, X))
    (tmp_path / "folder").rename(tmp_path / ".folder.old")  # killed between the two renames
    assert equal(guard.load(net.bind(variables(net, 2)), tmp_path / "folder").tree, saved)
