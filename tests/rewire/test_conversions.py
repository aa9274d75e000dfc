"""Each conversion on each family: how far apart the two models are in float64, or why it is refused."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

import normula as nm
from normula.rewire import RewireError
from normula.rewire.conversions import CONVERSIONS, conversion
from tests.rewire.families import FAMILIES, apart, random_vectors

EXACT = "exact"
SKIP = "the normed value also feeds the skip"
TIED = "is tied"
NORM = r"a norm in .* goes into it"
NO_LAYERNORM = "no LayerNorm"
NOT_POST = r"This is exact for Post-LN, x = norm\(x \+ f\(x\)\), and layer 1 is"

TABLE: dict[str, dict[str, str]] = {
    "own pre": {"fold": EXACT, "unfold": EXACT, "centre": EXACT, "shift": NOT_POST, "absorb": "no layer here has one"},
    "own pre, rmsnorm": {"fold": EXACT, "centre": NO_LAYERNORM},
    "own post": {"fold": SKIP, "centre": NORM, "shift": EXACT, "unshift": "exact for Post-LN shifted"},
    "own post, no embedding": {"fold": SKIP, "shift": EXACT},
    "own deepnorm": {"fold": SKIP, "centre": NORM, "absorb": EXACT, "shift": NOT_POST},
    "own admin": {"fold": SKIP, "absorb": EXACT},
    "own admin, no embedding": {"absorb": "has nothing to go into"},
    "own keel": {"absorb": "A spec has one epsilon"},
    "own peri": {"fold": EXACT, "centre": NORM},
    "own parallel": {"fold": EXACT, "centre": EXACT, "share": "none do"},
    "gpt2": {"fold": EXACT, "unfold": EXACT, "centre": TIED, "merge": "none follows another"},
    "llama": {"fold": EXACT, "unfold": EXACT, "centre": NO_LAYERNORM, "shift": NOT_POST},
    "bert": {"fold": SKIP, "unfold": SKIP, "centre": NORM, "shift": EXACT},
    "t5": {"fold": EXACT, "centre": NO_LAYERNORM, "shift": NOT_POST},
    "opt": {"fold": EXACT, "centre": TIED, "absorb": "no layer here has one"},
    "vit": {"fold": EXACT, "unfold": EXACT, "centre": EXACT},
    "bloom": {"fold": EXACT, "centre": NORM, "merge": "the first is read by something else too"},
    "bloom, skip from the norm": {"fold": SKIP, "centre": NORM},
    "falcon": {"fold": EXACT, "centre": TIED, "share": "none do", "unshare": EXACT},
    "falcon, two norms": {"fold": EXACT, "share": EXACT, "unshare": "none is here"},
    "olmo2": {"fold": EXACT, "centre": NO_LAYERNORM},
    "gpt-neox": {"fold": EXACT, "centre": EXACT, "share": EXACT},
    "gpt-j": {"fold": EXACT, "centre": EXACT, "unshare": EXACT},
    "bart": {"fold": SKIP, "centre": NORM, "shift": EXACT},
    "gemma": {"fold": EXACT, "unfold": EXACT},
    "encoder layers, pre": {"fold": EXACT, "unfold": EXACT, "centre": "input in the model goes into it"},
    "encoder layers, post": {"fold": SKIP, "shift": EXACT},
    "encoder layers, post and final": {"merge": EXACT, "shift": "merge the two first"},
}

CELLS = [(family, name) for family, row in TABLE.items() for name in row]


@pytest.mark.parametrize(("family", "name"), CELLS)
def test_a_conversion_is_exact_or_refused(family: str, name: str) -> None:
    """Compared with the old model itself, at random gains and biases, in float64; the old one stays as it was."""
    model, example = FAMILIES[family]()
    model = random_vectors(model, equal_in_layers=name == "share", constant_before_last=name == "merge")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    expected = TABLE[family][name]
    if expected != EXACT:
        with pytest.raises(ValueError, match=expected):
            conversion(model, name, example=example)
        return
    new, record = conversion(model, name, example=example)
    in_float32 = family == "gemma"  # its norms multiply by their gains in float32, whatever the model is in
    assert apart(model, new, example) < (1e-6 if in_float32 else 1e-9)
    assert record.apart is not None
    assert record.apart < 1e-9
    assert sum(one.numel() for one in new.parameters()) - sum(one.numel() for one in model.parameters()) == record.added
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("family", ["gpt2", "opt", "bloom", "falcon"])
def test_untied_the_head_is_folded_into(family: str) -> None:
    model, example = FAMILIES[family]()
    model = random_vectors(model)
    new, record = conversion(model, "fold", example=example, untie=True)
    assert apart(model, new, example) < 1e-9
    assert not any("tied" in one for one in record.left)
    assert sum(one.numel() for one in new.parameters()) - sum(one.numel() for one in model.parameters()) == record.added


@pytest.mark.parametrize("family", ["gpt2", "opt", "falcon"])
def test_untied_a_stream_is_centred(family: str) -> None:
    model, example = FAMILIES[family]()
    model = random_vectors(model)
    new, _ = conversion(model, "centre", example=example, untie=True)
    assert apart(model, new, example) < 1e-9
    assert new.config.tie_word_embeddings is False


@pytest.mark.parametrize("family", ["own post", "own post, no embedding", "bert", "bart", "encoder layers, post"])
def test_shifted_and_back_is_the_old_model(family: str) -> None:
    model, example = FAMILIES[family]()
    model = random_vectors(model)
    shifted, _ = conversion(model, "shift", example=example)
    back, _ = conversion(shifted, "unshift", example=example)
    assert apart(model, back, example) == 0.0
    assert _formulas(back, example) == _formulas(model, example)
    assert _formulas(shifted, example) != _formulas(model, example)


def test_after_folding_gains_are_1_and_biases_0_and_folding_again_changes_nothing() -> None:
    model, example = FAMILIES["gpt2"]()
    folded, _ = conversion(random_vectors(model), "fold", example=example)
    first = folded.transformer.h[0].ln_1
    assert torch.equal(first.weight, torch.ones_like(first.weight))
    assert not first.bias.any()
    again, _ = conversion(folded, "fold", example=example)
    assert all(torch.equal(one, other) for one, other in zip(folded.parameters(), again.parameters(), strict=True))


def test_folding_is_the_product_with_the_gain() -> None:
    """W diag(g), c + W b, by hand, for GPT-2's matrices, whose first axis is the input."""
    model, example = FAMILIES["gpt2"]()
    model = random_vectors(model)
    folded, _ = conversion(model, "fold", example=example)
    old, new = model.transformer.h[1], folded.transformer.h[1]
    by_hand = old.ln_2.bias @ old.mlp.c_fc.weight + old.mlp.c_fc.bias
    torch.testing.assert_close(new.mlp.c_fc.weight, torch.diag(old.ln_2.weight) @ old.mlp.c_fc.weight)
    torch.testing.assert_close(new.mlp.c_fc.bias, by_hand)


def test_unfolded_gains_hold_what_columns_have_in_common() -> None:
    model, example = FAMILIES["llama"]()
    model = random_vectors(model)
    folded, _ = conversion(model, "fold", example=example)
    unfolded, _ = conversion(folded, "unfold", example=example)
    layer = unfolded.model.layers[0]
    columns = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]).square().sum(0)
    torch.testing.assert_close(columns, columns.mean().expand_as(columns))
    assert apart(model, unfolded, example) < 1e-9


@pytest.mark.parametrize("family", ["own pre", "vit", "gpt-neox"])
def test_a_centred_model_is_read_with_rmsnorms_and_a_stream_of_mean_0(family: str) -> None:
    model, example = FAMILIES[family]()
    model = random_vectors(model)
    new, _ = conversion(model, "centre", example=example)
    args, kwargs = _given(example)
    reading = nm.read(new, *args, **kwargs)
    assert {one.kind for one in reading.norms} == {"RMSNorm"}
    assert {one.eps for one in reading.norms} == {one.eps for one in nm.read(model, *args, **kwargs).norms}
    seen: list[torch.Tensor] = []
    for one in reading.norms:
        new.get_submodule(one.path).register_forward_hook(lambda _module, given, _result: seen.append(given[0]))
    with torch.no_grad():
        new(*args, **kwargs)
    assert all(float(one.mean(-1).abs().max()) < 1e-12 for one in seen)


def test_the_absorbed_factor_leaves_a_plain_post_ln_spec_with_epsilon_over_its_square() -> None:
    """DeepNorm's a is (2L)^(1/4): eps/a^2 = eps/(2L)^(1/2)."""
    model, example = FAMILIES["own deepnorm"]()
    new, _ = conversion(model, "absorb", example=example)
    assert str(new.spec.placement.formula) == str(nm.placement("post").formula)
    assert new.spec.eps == pytest.approx(model.spec.eps / (2 * model.spec.layers) ** 0.5)


def test_profiled_scales_become_a_plain_network() -> None:
    model, example = FAMILIES["own admin"]()
    new, record = conversion(random_vectors(model), "absorb", example=example)
    assert str(new.spec.placement.formula) == str(nm.placement("post").formula)
    assert record.added == -2 * model.spec.layers * model.spec.width


@pytest.mark.parametrize("family", ["home-made deepnorm", "home-made admin"])
def test_factors_of_a_model_of_someone_elses_are_absorbed(family: str) -> None:
    model, example = FAMILIES[family]()
    model = random_vectors(model)
    new, _ = conversion(model, "absorb", example=example)
    assert apart(model, new, example) < 1e-9
    assert nm.read(new, *example).stages[0].block == "x = norm(x + attn(x)); x = norm(x + mlp(x))"


def test_unsharing_says_what_it_adds() -> None:
    """G-06: exact in inference, 2*d parameters a layer more, no longer tied."""
    model, example = FAMILIES["gpt-j"]()
    _, record = conversion(model, "unshare", example=example)
    assert record.added == 2 * 2 * 16
    assert all(re.search("exact in inference, adds 32 parameters, unties", one) for one in record.done)


def test_experts_are_left_as_they_are() -> None:
    """PyTorch multiplies groups of rows in float32 and narrower only; the proof is in float64 all the same."""
    model, example = FAMILIES["mixtral"]()
    _, record = conversion(model.float(), "fold", example=example)
    assert record.apart is not None
    assert record.apart < 1e-9
    assert [one.partition(":")[0] for one in record.left] == [
        f"model.layers.{layer}.post_attention_layernorm" for layer in range(2)
    ]


def test_norms_that_differ_are_not_shared() -> None:
    model, example = FAMILIES["falcon, two norms"]()
    with pytest.raises(RewireError, match="are not: the model would compute something else"):
        conversion(random_vectors(model), "share", example=example)


def test_shared_norms_are_one_tensor_until_they_are_unshared() -> None:
    model, example = FAMILIES["gpt-neox"]()
    shared, _ = conversion(random_vectors(model, equal_in_layers=True), "share", example=example)
    layer = shared.gpt_neox.layers[0]
    assert layer.input_layernorm is layer.post_attention_layernorm
    own, _ = conversion(shared, "unshare", example=example)
    layer = own.gpt_neox.layers[0]
    assert layer.input_layernorm is not layer.post_attention_layernorm
    assert torch.equal(layer.input_layernorm.weight, layer.post_attention_layernorm.weight)


def test_norms_with_different_gains_are_not_merged() -> None:
    model, example = FAMILIES["encoder layers, post and final"]()
    with pytest.raises(RewireError, match="gain is not one number for all features"):
        conversion(random_vectors(model), "merge", example=example)


@pytest.mark.parametrize("gain", [0.5, -2.0])
@pytest.mark.parametrize("eps", [(1e-5, 1e-5), (1e-2, 0.3)])
def test_two_norms_are_one_with_another_epsilon(gain: float, eps: tuple[float, float]) -> None:
    """Large epsilons: dropping one of the two norms alone would be far off."""
    model, example = FAMILIES["encoder layers, post and final"]()
    model = random_vectors(model)
    model.layers[-1].norm2.weight.data.fill_(gain)
    model.layers[-1].norm2.bias.data.fill_(0.7)
    model.layers[-1].norm2.eps, model.norm.eps = eps
    new, _ = conversion(model, "merge", example=example)
    assert apart(model, new, example) < 1e-9
    assert isinstance(new.norm, nn.Identity)


def test_a_wrong_edit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("normula.torch.conversions.edited")
    monkeypatch.setattr(module, "_along", lambda weight, _vector, _axis: weight)
    model, example = FAMILIES["llama"]()
    with pytest.raises(RewireError, match="It is not returned"):
        conversion(model, "fold", example=example)


def test_a_name_that_is_none_gets_the_nearest() -> None:
    model, example = FAMILIES["gpt2"]()
    with pytest.raises(ValueError, match=r"a conversion is one of fold, .*not 'folds'.*fold"):
        conversion(model, "folds", example=example)
    assert set(CONVERSIONS) == {name for row in TABLE.values() for name in row}


def test_quantised_and_absent_weights_are_refused() -> None:
    model, example = FAMILIES["gpt2"]()
    model.transformer.h[0].mlp.c_fc.weight = nn.Parameter(torch.zeros(16, 64, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ValueError, match=r"c_fc.weight is quantised"):
        conversion(model, "fold", example=example)
    with torch.device("meta"):
        absent, _ = FAMILIES["gpt2"]()
    with pytest.raises(ValueError, match="has no values"):
        conversion(absent, "fold", example=example)


def test_models_of_jax_are_told_what_to_do() -> None:
    pytest.importorskip("flax")
    model = nm.build(nm.Spec(placement="pre", layers=1, width=8, heads=2, hidden=16), framework="nnx")
    with pytest.raises(RewireError, match="Modules of PyTorch are converted"):
        conversion(model, "fold", example=(torch.zeros(1, 2, 8),))


def _given(example: Any) -> tuple[Any, Any]:
    return ((), example) if isinstance(example, dict) else (example, {})


def _formulas(model: nn.Module, example: Any) -> list[str]:
    args, kwargs = _given(example)
    return [stage.block for stage in nm.read(model, *args, **kwargs).stages]
