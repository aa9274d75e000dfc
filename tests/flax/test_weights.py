"""Weights between the frameworks, in memory and on disk, with the formula attached."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import normula.torch as in_torch
from normula import flax as in_flax
from normula.flax import linen, nnx
from normula.record.weights import WeightsError, read_weights, write_weights
from normula.spec import Spec
from normula.torch.state import StateError
from tests.cases import random_inputs, small
from tests.near import FLOAT32, assert_near

LANGUAGE = small("mix-ln", vocab=7, causal=True, layers=4)


@pytest.fixture
def trained() -> in_torch.Model:
    """A model that is not at its start."""
    model = in_torch.build(LANGUAGE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return model.eval()


def output(model: in_torch.Model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(random_inputs(LANGUAGE))).numpy()


def test_a_state_dict_becomes_a_tree_and_back(trained: in_torch.Model) -> None:
    net = in_flax.network(LANGUAGE)
    tree = in_flax.to_tree(net, trained.state_dict())
    y = in_flax.apply(net, tree, random_inputs(LANGUAGE))
    assert_near(np.asarray(y), output(trained), FLOAT32)
    back = in_flax.to_arrays(net, tree)
    for name, value in trained.state_dict().items():
        np.testing.assert_array_equal(back[name], value.numpy())


@pytest.mark.parametrize("flavour", [linen, nnx], ids=["linen", "nnx"])
def test_a_file_goes_both_ways(trained: in_torch.Model, flavour: object, tmp_path: Path) -> None:
    in_torch.save(trained, tmp_path / "a.safetensors")
    module = flavour.Stack(LANGUAGE)  # type: ignore[attr-defined]
    tree = in_flax.load(module, tmp_path / "a.safetensors")
    x = random_inputs(LANGUAGE)
    y = module(x) if flavour is nnx else module.apply({"params": tree}, x)
    assert_near(np.asarray(y), output(trained), FLOAT32)

    in_flax.save(module, tmp_path / "b.safetensors", None if flavour is nnx else tree)
    other = in_torch.build(LANGUAGE)
    in_torch.load(other, tmp_path / "b.safetensors")
    np.testing.assert_array_equal(output(other.eval()), output(trained))


def test_the_map_that_embeds_values_goes_both_ways(tmp_path: Path) -> None:
    spec = small("pre", features=3, classes=4, init="torch")
    model, x = in_torch.build(spec), random_inputs(spec).astype(np.float32)
    in_torch.save(model, tmp_path / "a.safetensors")
    module = linen.Stack(spec)
    tree = in_flax.load(module, tmp_path / "a.safetensors")
    np.testing.assert_array_equal(tree["embed"]["features"]["kernel"].T, model.embed.features.weight.detach().numpy())
    with torch.no_grad():
        expected = model(torch.tensor(x)).numpy()
    assert_near(np.asarray(module.apply({"params": tree}, x)), expected, FLOAT32)

    in_flax.save(module, tmp_path / "b.safetensors", tree)
    other = in_torch.build(replace(spec, seed=1))
    in_torch.load(other, tmp_path / "b.safetensors")
    with torch.no_grad():
        np.testing.assert_array_equal(other(torch.tensor(x)).numpy(), expected)


def test_an_orbax_folder_goes_both_ways(tmp_path: Path) -> None:
    module = nnx.Stack(LANGUAGE)
    in_flax.save(module, tmp_path / "saved")
    other = linen.Stack(LANGUAGE)
    tree = in_flax.load(other, tmp_path / "saved")
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), tree, module.params()))


def test_what_a_file_says_of_itself(trained: in_torch.Model, tmp_path: Path) -> None:
    in_torch.save(trained, tmp_path / "a.safetensors")
    _, about = read_weights(tmp_path / "a.safetensors")
    assert about["formula"] == "x + f(norm(x)); final norm(x); norm(x + f(x)) up to layer L/4"
    assert Spec.from_dict(about["spec"]) == LANGUAGE


@pytest.mark.negative
@pytest.mark.parametrize("kind", ["a.safetensors", "folder"])
def test_weights_of_another_formula_are_refused_unless_allowed(kind: str, tmp_path: Path) -> None:
    pre, post = (nnx.Stack(small(name, final="x")) for name in ("pre", "post"))
    in_flax.save(pre, tmp_path / kind)
    with pytest.raises(WeightsError, match=r"are of x \+ f\(norm\(x\)\) and this model is norm\(x \+ f\(x\)\)"):
        in_flax.load(post, tmp_path / kind)
    if kind == "folder":  # a file has the plan's names, which say where a norm is
        in_flax.load(post, tmp_path / kind, allow=True)
        assert jnp.array_equal(
            post.params()["layers"]["attn"]["f"]["q"]["kernel"], pre.params()["layers"]["attn"]["f"]["q"]["kernel"]
        )
    model = in_torch.build(small("post", final="x"))
    if kind != "folder":
        with pytest.raises(WeightsError, match="are of x"):
            in_torch.load(model, tmp_path / kind)
        with pytest.raises(StateError):
            in_torch.load(model, tmp_path / kind, allow=True)


@pytest.mark.negative
def test_what_is_no_file_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_weights(tmp_path / "none.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"\x00\x01")
    with pytest.raises(WeightsError, match="no safetensors file, or is cut short"):
        read_weights(tmp_path / "cut.safetensors")
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "plain.safetensors")
    with pytest.raises(WeightsError, match="carries no formula"):
        read_weights(tmp_path / "plain.safetensors")
    with pytest.raises(WeightsError, match="no Orbax checkpoint"):
        in_flax.load(nnx.Stack(LANGUAGE), tmp_path / "nothing")


@pytest.mark.negative
def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_weights(path, {"a": np.ones(2)}, {"formula": "x + f(x)"})
    with pytest.raises(TypeError):
        write_weights(path, {"a": np.ones(2)}, {"formula": object()})
    assert read_weights(path)[1] == {"formula": "x + f(x)"}
    assert list(tmp_path.iterdir()) == [path]
