"""What a plan says before anything is changed, and what is preserved."""

import pytest
import torch
from torch import nn

import normula as nm
from normula.record import from_json, to_json
from normula.record.rewiring import Plan
from normula.rewire import RewireError, plan
from tests.rewire.models import encoder, stack, transformer


def test_learned_factors_that_the_new_formula_has_not_are_named() -> None:
    model = nm.build(nm.Spec(placement="layerscale", layers=2, width=16, heads=2))
    found = plan(model, "pre", example=(torch.randn(2, 5, 16),))
    names = tuple(f"layers.{layer}.{word}.gain" for layer in (0, 1) for word in ("attn", "mlp"))
    assert (found.unused.names, found.unused.count) == (names, 64)
    assert [one.change.split()[0] for one in found.changes] == list(names)


def test_each_change_and_the_parameters() -> None:
    model, example = encoder()
    found = plan(model, "pre", example=example)
    assert found.before == ("layers.0 to layers.1: x = norm(x + attn(x)); x = norm(x + mlp(x))",)
    assert found.after == ("layers.0 to layers.1: x = x + attn(norm(x)); x = x + mlp(norm(x))",)
    assert (found.added.names, found.added.count) == (("norm.weight", "norm.bias"), 32)
    assert found.removed.count == 0
    assert [(one.path, one.origin) for one in found.norms] == [
        ("layers.0.norm1", "moved"), ("layers.0.norm2", "moved"),
        ("layers.1.norm1", "moved"), ("layers.1.norm2", "moved"), ("norm", "new"),
    ]  # fmt: skip
    assert found.preserved == "unknown"
    assert from_json(Plan, to_json(found)) == found


def test_a_new_closing_norm_and_a_removed_embedding_norm_are_told() -> None:
    """BERT to Pre-LN: its weights are no longer what they were trained for."""
    pytest.importorskip("transformers")
    model, example = transformer("BertModel")
    new = nm.rewire(model, "pre", example=example, accept_inexact=True)
    told = {(one.site, one.change) for one in new.rewiring.changes if one.site in ("embed", "final")}
    assert told == {
        ("embed", "- embeddings.LayerNorm"),
        ("final", "+ encoder.layer.1.final_norm, gain 1, bias 0"),
    }
    assert new.rewiring.preserved == "parameters"
    assert new.rewiring.difference is not None
    assert new.rewiring.difference > 0.01
    assert set(new.rewiring.removed.names) == {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"}


def test_epsilon_stands_at_every_norm_as_its_module_has_it() -> None:
    model, (x,) = stack("pre", layers=3)
    for number, layer in enumerate(model.layers):
        layer.first.eps, layer.second.eps = 1e-5 * (number + 1), 1e-12
    model.last.eps = 1e-3
    found = plan(model, "peri", example=(x,)).norms
    eps = {one.path: one.eps for one in found if one.origin == "kept"}
    assert [eps[f"layers.{n}.first"] for n in range(3)] == pytest.approx([1e-5, 2e-5, 3e-5])
    assert [eps[f"layers.{n}.second"] for n in range(3)] == pytest.approx([1e-12] * 3)
    assert eps["last"] == pytest.approx(1e-3)
    new = nm.rewire(model, "peri", example=(x,), accept_inexact=True)
    made = {name: module.eps for name, module in new.named_modules() if hasattr(module, "eps")}
    assert all(made[one.path] == pytest.approx(one.eps) for one in found)


def test_a_norm_that_two_sites_share_becomes_two() -> None:
    model, (x,) = stack("shared")
    new = nm.rewire(model, "pre", example=(x,))  # nothing to do: it is Pre-LN already
    assert new.rewiring.preserved == "function"
    found = plan(model, "post", example=(x,))
    assert any("2 sites, 1 tensor -> 2 tensors (copied)" in note for note in found.notes)
    assert found.added.count == 2 * 2 * 16
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    for old, layer in zip(model.layers, new.layers, strict=True):
        copy = next(module for name, module in layer.named_children() if "norm_sum" in name)
        assert torch.equal(copy.weight, old.first.weight)
        assert copy.weight is not layer.first.weight


def test_one_norm_of_a_parallel_block_as_two_is_exact() -> None:
    model, (x,) = stack("parallel")
    new = nm.rewire(model, "parallel-two-norms", example=(x,))
    assert new.rewiring.preserved == "function"
    assert torch.equal(new(x), model(x))
    assert new.rewiring.added.count == 2 * 2 * 16
    assert any("trained apart" in note for note in new.rewiring.notes)


def test_two_norms_of_a_parallel_block_as_one_is_refused() -> None:
    model, (x,) = stack("parallel")
    two = nm.rewire(model, "parallel-two-norms", example=(x,))
    with torch.no_grad():
        two.layers[0].mlp_norm_in.weight.add_(0.5)
    with pytest.raises(RewireError, match="not equivalent"):
        nm.rewire(two, "parallel", example=(x,))


def test_falcons_norms() -> None:
    pytest.importorskip("transformers")
    model, example = transformer("FalconModel", parallel_attn=True)
    new = nm.rewire(model, "parallel-two-norms", example=example)
    assert new.rewiring.preserved == "function"
    assert new.rewiring.added.count == 2 * 2 * 32


def test_a_residual_taken_after_the_norm_is_not_pre_ln() -> None:
    model, example = stack("normalised")
    assert "normalised-residual" in nm.read(model, *example).stages[0].names
    with pytest.raises(RewireError, match=r"not equivalent.*trained under the old formula"):
        nm.rewire(model, "pre", example=example)
    assert nm.rewire(model, "pre", example=example, reinit="xavier").rewiring.preserved == "nothing"


def test_the_function_at_initialisation_only() -> None:
    """At gain 1 and bias 0, one shared norm and two of their own are the same."""
    model, (x,) = stack("parallel")
    two = nm.rewire(model, "parallel-two-norms", example=(x,))
    one = nm.rewire(two, "parallel", example=(x,), accept_inexact=True)
    assert one.rewiring.preserved == "function at initialisation"


def test_a_gain_that_starts_at_one_changes_nothing() -> None:
    model, (x,) = stack("pre")
    new = nm.rewire(model, "x + gain(1) * f(norm(x))", example=(x,))
    assert new.rewiring.preserved == "function"
    assert torch.allclose(new(x), model(x), atol=1e-6)
    with pytest.raises(RewireError, match="not equivalent"):
        nm.rewire(model, "rezero", example=(x,))


def test_nothing_to_do() -> None:
    model, (x,) = stack("pre")
    new = nm.rewire(model, "pre", example=(x,))
    assert (new.rewiring.preserved, new.rewiring.changes) == ("function", ())
    assert new is not model
    assert [type(one) for one in new.modules()] == [type(one) for one in model.modules()]


def test_norms_that_nothing_calls_stay() -> None:
    model, (x,) = stack("pre")
    model.layers[0].idle = nn.LayerNorm(16)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    assert "layers.0.idle.weight" in dict(new.named_parameters())
    assert any("layers.0.idle" in note for note in new.rewiring.notes)
