"""Models of JAX that are rewired: against closed forms, as pytrees, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import normula as nm  # noqa: E402
from normula.rewire import RewireError, migration, plan, remap  # noqa: E402
from tests.rewire.jax_models import Net, attention, function, mlp, normed, of, stream  # noqa: E402

KINDS = ["linen", "nnx", "function"]


def rewired(kind: str, to: str) -> Any:
    model, example = of(kind)
    return nm.rewire(model, to, example=example, accept_inexact=True)


@pytest.mark.parametrize("to", ["pre", "post", "peri", "parallel", "layerscale", "ngpt", "gpas", "dyt", "b2t"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_placement_is_reached_with_proof(kind: str, to: str) -> None:
    new = rewired(kind, to)
    placement, reading = nm.placement(to), nm.read(new, stream())
    assert {stage.proof for stage in reading.stages} == {"replayed"}
    assert any(to in stage.names for stage in reading.stages)
    assert (reading.embed_norm, reading.final_norm) == (str(placement.embed) != "x", str(placement.final) != "x")
    assert new.rewiring.proof == "replayed"


def test_the_closed_form_of_post() -> None:
    new, (w, x) = rewired("function", "post"), of("function")[1]
    for layer in w["layers"]:
        x = normed(x + attention(layer, x), 1 + layer["a"])
        x = normed(x + mlp(layer, x), 1 + layer["b"])
    assert np.allclose(new(stream()), x, atol=1e-5)


def test_the_closed_form_of_peri_with_gains_of_its_own() -> None:
    new, (w, x) = rewired("function", "peri"), of("function")[1]
    own = {name: one + 0.1 * jnp.arange(16.0) for name, one in new.parameters.items() if "norm" in name}
    new = type(new)(new._how, {**new.parameters, **own})

    def out(place: int, word: str, y: Any) -> Any:
        name = f"layers/{place}/{word}_norm_out"
        return normed(y, own[f"{name}/scale"], own[f"{name}/bias"])

    for place, layer in enumerate(w["layers"]):
        x = x + out(place, "attn", attention(layer, normed(x, 1 + layer["a"])))
        x = x + out(place, "mlp", mlp(layer, normed(x, 1 + layer["b"])))
    assert np.allclose(new(stream()), normed(x, own["final_norm/scale"], own["final_norm/bias"]), atol=1e-5)


def test_gradients_are_those_of_the_closed_form() -> None:
    new, (w, x) = rewired("function", "parallel"), of("function")[1]

    def closed(w: Any) -> Any:
        y = x
        for layer in w["layers"]:
            n = normed(y, 1 + layer["a"])
            y = y + attention(layer, n) + mlp(layer, n)
        return (normed(y, jnp.ones(16)) ** 3).sum()

    wanted, found = jax.grad(closed)(w), jax.grad(lambda model: (model(x) ** 3).sum())(new).parameters
    for place, layer in enumerate(wanted["layers"]):
        for name in ("a", *"qkvoud"):
            assert np.allclose(found[f"layers/{place}/{name}"], layer[name], atol=1e-3, rtol=1e-3)
    assert new.rewiring.removed.names == ("layers/0/b", "layers/1/b")


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_is_the_same_function(kind: str) -> None:
    model, example = of(kind)
    old = nm.read(model, *example)
    to = "post" if kind != "nnx" else "pre"
    there = nm.rewire(model, to, example=example, accept_inexact=True)
    back = nm.rewire(there, "post" if kind == "nnx" else "pre-no-final", example=(stream(),), accept_inexact=True)
    assert [stage.block for stage in nm.read(back, stream()).stages] == [stage.block for stage in old.stages]
    if kind != "linen":  # which has lost the norm after its stack, with its values
        result = model(*example)
        assert np.allclose(back(stream()), result, atol=1e-5)


def test_other_shapes_and_compiled() -> None:
    new = rewired("linen", "peri")
    x = stream(7)
    assert new(x).shape == x.shape
    assert np.allclose(jax.jit(lambda model, x: model(x))(new, x), new(x), atol=1e-5)
    assert np.allclose(new.apply(new.parameters, x), new(x))


def test_layers_that_are_scanned() -> None:
    model = nm.build(nm.Spec(placement="pre", layers=3, width=16, heads=2, vocab=20), "linen")
    ids = jnp.arange(16).reshape(2, 8)
    variables = model.init(jax.random.key(0), ids)
    new = nm.rewire(model, "peri", example=(variables, ids), accept_inexact=True)
    assert "layers/2/mlp_norm_out/scale" in new.parameters
    (stage,) = nm.read(new, ids).stages
    assert (stage.layers, stage.names[0], stage.proof) == (3, "peri", "replayed")


def test_what_is_preserved() -> None:
    model, example = of("linen")
    assert nm.rewire(model, "pre", example=example).rewiring.preserved == "function"
    with pytest.raises(RewireError, match="not equivalent") as caught:
        nm.rewire(model, "post", example=example)
    assert "reinit" not in str(caught.value)
    found = plan(model, "peri", example=example)
    assert (found.added.count, found.removed.count) == (128, 0)


def test_a_checkpoint_knows_the_formula(tmp_path: Path) -> None:
    new, other = rewired("linen", "peri"), rewired("linen", "post")
    path = tmp_path / "peri.safetensors"
    assert nm.guard.save(new, path, (stream(),)).formula.startswith("2 x (x = x + norm(attn(norm(x)))")
    again = nm.guard.load(rewired("linen", "peri"), path, (stream(),)).tree
    assert np.allclose(again(stream()), new(stream()))
    with pytest.raises(ValueError, match="is refused"):
        nm.guard.load(other, path, (stream(),))


def test_the_flow_of_a_rewired_model() -> None:
    found = nm.flow(rewired("linen", "peri"), stream())
    assert found.reading["stages"][0]["names"][0] == "peri"
    assert found.identity < 1e-5


@pytest.mark.negative
def test_what_is_refused() -> None:
    model, example = of("linen")
    with pytest.raises(RewireError, match="inside of sublayers"):
        nm.rewire(model, "qk-norm", example=example, accept_inexact=True)
    with pytest.raises(RewireError, match="several streams"):
        nm.rewire(model, "residual", example=example, accept_inexact=True)
    with pytest.raises(RewireError, match="without reinit"):
        nm.rewire(model, "post", example=example, reinit="xavier")
    with pytest.raises(RewireError, match="module of PyTorch"):
        migration(model, "post", example=example)
    new = nm.rewire(model, "post", example=example, accept_inexact=True)
    with pytest.raises(RewireError, match="a tree like that of the weights"):
        remap(None, model, new)


@pytest.mark.negative
def test_a_pass_that_takes_another_path_is_an_error() -> None:
    def choosing(w: Any, x: Any, twice: bool = False) -> Any:
        return function(w, function(w, x)) if twice else function(w, x)

    w, x = of("function")[1]
    new = nm.rewire(choosing, "post", example=(w, x), accept_inexact=True)
    assert np.allclose(new(x), rewired("function", "post")(x))
    with pytest.raises(RuntimeError, match="another path"):
        new(x, twice=True)


def test_net_is_pre_ln() -> None:
    model, (variables, x) = of("linen")
    assert nm.read(model, variables, x).stages[0].names[0] == "pre"
    assert isinstance(model, Net)
