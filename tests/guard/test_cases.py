"""The field's cases: every checkpoint that fits another placement is refused, at its start and trained."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

import normula as nm
from normula import guard
from normula.guard.differences import in_behaviour
from normula.rewire.errors import RewireError
from tests.guard import models as m

pytestmark = pytest.mark.negative

SEQ2SEQ = {"input_ids": m.IDS, "decoder_input_ids": m.DECODED}
VECTORS = (torch.linspace(-1, 1, 160).mul(7).sin().reshape(2, 5, 16),)

SAME_KEYS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], Any, list[str]]] = {
    "wav2vec2, the stable flag": (
        lambda: m.wav2vec2(True),
        lambda: m.wav2vec2(False),
        (m.SOUND,),
        ["after the stack (at layer 3): a norm against none", "before the stack (at layer 1): no norm against one"],
    ),
    "BLOOM, the residual flag": (
        lambda: m.bloom(True),
        lambda: m.bloom(False),
        (m.IDS,),
        ["n = norm(x)", "post_attention_layernorm (2 of them): attn.norm_sum against mlp.norm_in"],
    ),
    "a stack with norm_first": (
        lambda: m.stack(False),
        lambda: m.stack(True),
        VECTORS,
        ["x = norm(x + attn(x))", "x = x + attn(norm(x))"],
    ),
    "a residual taken after the norm": (
        lambda: m.Home("normalised residual"),
        lambda: m.Home("post"),
        (m.IDS,),
        ["layers 1-3 (blocks)", "blocks.*.n1 (3 of them): attn.norm_in against attn.norm_sum"],
    ),
}
"""Two models with the same keys and shapes; what is run; what the refusal must say."""


@pytest.mark.parametrize("weights", ["default", "randomised"])
@pytest.mark.parametrize("case", SAME_KEYS)
def test_a_trap_of_equal_keys_is_refused_both_ways(case: str, weights: str, tmp_path: Path) -> None:
    one, other, example, words = SAME_KEYS[case]
    for saved, loading, said in ((one(), other(), words), (other(), one(), [])):
        saved = m.randomised(saved) if weights == "randomised" else saved
        other_twin = copy.deepcopy(loading)
        other_twin.load_state_dict(saved.state_dict())  # the trap: a strict load says nothing
        guard.save(saved, tmp_path / "a.safetensors", example)
        before = copy.deepcopy(loading.state_dict())
        with pytest.raises(guard.WeightsError, match=r"saved as .*; this model is ") as refusal:
            guard.load(loading, tmp_path / "a.safetensors")
        message = str(refusal.value)
        assert "\n" not in message
        assert all(word in message for word in said), message
        assert all(torch.equal(before[name], tensor) for name, tensor in loading.state_dict().items())
        guard.load(type_twin(saved), tmp_path / "a.safetensors")  # and its own kind takes it


def type_twin(model: nn.Module) -> nn.Module:
    """The same model with other weights."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for one in twin.parameters():
            one.mul_(0.5)
    return twin


def test_randomised_weights_are_refused_by_what_they_compute_too(tmp_path: Path) -> None:
    saved, other = m.randomised(m.bloom(True)), m.bloom(False)
    stamp = guard.stamp(saved, (m.IDS,))
    other.load_state_dict(saved.state_dict())
    found = guard.stamp(other, (m.IDS,))
    assert stamp.fingerprint is not None
    assert found.fingerprint is not None
    assert in_behaviour(stamp.fingerprint, found.fingerprint)
    assert not in_behaviour(stamp.fingerprint, stamp.fingerprint)


def refused(saved: nn.Module, loading: nn.Module, example: Any, folder: Path) -> str:
    guard.save(saved, folder / "a.safetensors", example)
    before = copy.deepcopy(loading.state_dict())
    with pytest.raises(guard.WeightsError) as refusal:
        guard.load(loading, folder / "a.safetensors", example)
    assert all(torch.equal(before[name], tensor) for name, tensor in loading.state_dict().items())
    return str(refusal.value)


def test_a_closing_norm_that_the_model_forgot_is_fatal(tmp_path: Path) -> None:
    message = refused(m.opt(), m.opt(_remove_final_layer_norm=True), (m.IDS,), tmp_path)
    for part in ("weight", "bias"):
        assert f"model.decoder.final_layer_norm.{part}, after block 1, before the head" in message
    assert "unexpected (fatal)" in message


def test_a_closing_norm_that_the_checkpoint_lacks_is_fatal(tmp_path: Path) -> None:
    message = refused(m.opt(_remove_final_layer_norm=True), m.opt(), (m.IDS,), tmp_path)
    assert "missing from the checkpoint (fatal): model.decoder.final_layer_norm.weight, after block 1" in message


def test_one_shared_norm_and_two_are_told_apart(tmp_path: Path) -> None:
    message = refused(m.falcon(False), m.falcon(True), (m.IDS,), tmp_path)
    assert "n = norm(x); x = x + attn(n) + mlp(n)" in message
    assert "x = x + attn(norm(x)) + mlp(norm(x))" in message


def test_a_pre_norm_roberta_is_no_roberta(tmp_path: Path) -> None:
    message = refused(m.encoder(hf.RobertaPreLayerNormModel), m.encoder(hf.RobertaModel), (m.IDS,), tmp_path)
    assert "saved as embed norm(x); 2 x (x = x + attn(norm(x)); x = x + mlp(norm(x))); final norm(x)" in message
    assert "encoder.layer.*.output.LayerNorm.weight (2 times), on the sum after the MLP" in message
    assert "LayerNorm.weight, after block 1, before the head" in message
    assert "never used in this model's forward" in message


def test_bert_is_no_megatron_bert(tmp_path: Path) -> None:
    message = refused(m.encoder(hf.BertModel), m.encoder(hf.MegatronBertModel), (m.IDS,), tmp_path)
    assert "embeddings.LayerNorm.weight, before the first block" in message
    assert "encoder.ln.weight, after block 1, before the head" in message


@pytest.mark.parametrize("kind", [hf.MBartModel, hf.PegasusModel, hf.BlenderbotModel])
def test_others_of_its_family_are_no_bart(kind: type[Any], tmp_path: Path) -> None:
    message = refused(m.seq2seq(kind), m.seq2seq(hf.BartModel), SEQ2SEQ, tmp_path)
    assert "encoder.layer_norm.weight, after block 1, before the head" in message
    assert "x = x + cross(norm(x))" in message


def test_a_flag_flipped_on_a_live_module_is_found(tmp_path: Path) -> None:
    model = m.stack(False)
    guard.save(model, tmp_path / "a.safetensors", VECTORS)
    guard.verify(model, tmp_path / "a.safetensors")
    for layer in model.layers:  # type: ignore[union-attr]
        layer.norm_first = True  # type: ignore[union-attr]
    for training in (True, False):
        model.train(training)
        with pytest.raises(guard.WeightsError, match="is not what"):
            guard.verify(model, tmp_path / "a.safetensors")
        assert model.training is training


def test_one_flag_of_many_layers_is_found_by_its_layer(tmp_path: Path) -> None:
    model = m.stack(False)
    guard.save(model, tmp_path / "a.safetensors", VECTORS)
    model.layers[1].norm_first = True  # type: ignore[union-attr, index]
    with pytest.raises(guard.WeightsError, match=r"layer 2 \(layers"):
        guard.verify(model, tmp_path / "a.safetensors")


@pytest.mark.parametrize(("saved", "here"), [(1e-12, 1e-5), (1e-5, 1e-6), (1e-6, 1e-5)])
def test_another_eps_is_another_model(saved: float, here: float, tmp_path: Path) -> None:
    message = refused(m.Home(eps=saved), m.Home(eps=here), (m.IDS,), tmp_path)
    assert f"blocks.*.n1's eps (3 of them): {saved:.3g} against {here:.3g}" in message


def test_the_eps_of_every_norm_is_in_the_stamp() -> None:
    for model, eps in ((m.encoder(hf.BertModel), 1e-12), (m.bloom(False), 1e-5)):
        assert [norm.eps for norm in guard.stamp(model, (m.IDS,)).norms] == [pytest.approx(eps)] * len(norms(model))


def norms(model: nn.Module) -> list[nn.Module]:
    return [one for one in model.modules() if isinstance(one, nn.LayerNorm)]


def test_norms_are_named_by_where_they_stand_not_by_their_names() -> None:
    sites = {norm.path: norm.site for norm in guard.stamp(m.opt(), (m.IDS,)).norms}
    assert sites["model.decoder.layers.0.final_layer_norm"] == "mlp.norm_in"
    assert sites["model.decoder.final_layer_norm"] == "final"


def test_a_dropped_gain_is_named_and_only_a_pattern_lets_it_through(tmp_path: Path) -> None:
    model = m.randomised(m.Home())
    stamp = guard.stamp(model, (m.IDS,))
    tensors = {name: one for name, one in model.state_dict().items() if name != "blocks.1.n1.weight"}
    guard.save(tensors, tmp_path / "a.safetensors", stamp=stamp)
    for allow in (False, True):
        with pytest.raises(guard.WeightsError, match=r"missing .* blocks\.1\.n1\.weight, before attention"):
            guard.load(m.Home(), tmp_path / "a.safetensors", allow=allow)
    with pytest.raises(ValueError, match="matches nothing that is missing"):
        guard.load(m.Home(), tmp_path / "a.safetensors", allow_missing=["head.*"])
    with pytest.warns(UserWarning, match=r"blocks\.1\.n1\.weight was missing"):
        found = guard.load(m.Home(), tmp_path / "a.safetensors", allow_missing=["*.n1.weight"])
    assert found.allowed == ("blocks.1.n1.weight was missing, as was allowed; it is as it was",)


def test_swapped_tensors_are_named(tmp_path: Path) -> None:
    model = m.randomised(m.Home())
    stamp, tensors = guard.stamp(model, (m.IDS,)), dict(model.state_dict())
    one, other = "blocks.0.n1.weight", "blocks.0.n2.weight"
    tensors[one], tensors[other] = tensors[other], tensors[one]
    guard.save(tensors, tmp_path / "a.safetensors", stamp=stamp)
    with pytest.raises(guard.WeightsError, match=rf"swapped: {one} holds what {other} held"):
        guard.load(m.Home(), tmp_path / "a.safetensors")


def test_a_norm_that_is_never_used_is_listed(tmp_path: Path) -> None:
    model = m.Home()
    model.leftover = nn.LayerNorm(16)
    stamp = guard.save(model, tmp_path / "a.safetensors", (m.IDS,))
    assert stamp.unused == ("leftover.bias", "leftover.weight")
    other = m.Home(seed=1)
    other.leftover = nn.LayerNorm(16)
    (note,) = guard.load(other, tmp_path / "a.safetensors").notes
    assert note == "present, never used in forward: leftover.bias; leftover.weight"
    with pytest.raises(
        guard.WeightsError, match=r"never used in this model's forward: leftover\.bias; leftover\.weight"
    ):
        guard.load(m.Home(), tmp_path / "a.safetensors")


def test_what_is_allowed_is_said(tmp_path: Path) -> None:
    guard.save(m.stack(False), tmp_path / "a.safetensors", VECTORS)
    model = m.stack(True)
    with pytest.warns(UserWarning, match="let through: saved as"):
        found = guard.load(model, tmp_path / "a.safetensors", allow=True)
    assert "x = x + attn(norm(x))" in found.allowed[0]


def test_another_activation_is_found_by_what_it_computes(tmp_path: Path) -> None:
    model = m.stack(False)
    guard.save(model, tmp_path / "a.safetensors", VECTORS)
    for layer in model.layers:  # type: ignore[union-attr]
        layer.activation = torch.nn.functional.gelu  # type: ignore[union-attr]
    with pytest.raises(guard.WeightsError, match=r"does not compute what was saved, at the stream after layer 1"):
        guard.verify(model, tmp_path / "a.safetensors")


def test_norms_that_a_changed_default_leaves_out_are_named(tmp_path: Path) -> None:
    saved, upgraded = m.randomised(m.Variant("aiayn")), m.Variant()
    upgraded.load_state_dict(saved.state_dict())  # the trap: the norms are still there, and nobody calls them
    message = refused(saved, m.Variant(seed=1), VECTORS, tmp_path)
    assert "saved as 2 x (x = norm(x + attn(x)); x = norm(x + mlp(x))); this model is" in message
    assert "blocks.*.n1 (2 of them): LayerNorm at attn.norm_sum against no such norm" in message
    assert "never used in this model's forward" in message


def test_a_residual_taken_after_the_norm_is_kept_as_it_was_trained(tmp_path: Path) -> None:
    saved = m.Home("normalised residual")
    message = refused(m.randomised(saved), m.Home("post", seed=1), (m.IDS,), tmp_path)
    assert "saved as 3 x (n = norm(x); n = norm(n + attn(n)); x = n + mlp(n))" in message
    guard.save(saved, tmp_path / "a.safetensors", (m.IDS,))
    with pytest.raises(RewireError, match=r"not equivalent .* weights that were trained under the old formula"):
        nm.rewire(saved, "pre", example=(m.IDS,))


def test_a_shared_norm_twice_is_exact_and_belongs_to_the_model_with_two(tmp_path: Path) -> None:
    one = m.randomised(m.falcon(False))
    two = nm.rewire(one, "parallel-two-norms", example={"input_ids": m.IDS})
    assert two.rewiring.preserved == "function"
    assert sum(p.numel() for p in two.parameters()) - sum(p.numel() for p in one.parameters()) == 2 * (2 * 16)
    message = refused(two, m.falcon(False, seed=1), (m.IDS,), tmp_path)
    assert "saved as" in message
    assert "x = x + attn(norm(x)) + mlp(norm(x))" in message
    with pytest.raises(RewireError, match="not equivalent"):
        nm.rewire(m.randomised(m.falcon(True)), "parallel", example={"input_ids": m.IDS})


def test_weights_of_post_norm_in_a_rewired_body_are_refused_though_their_names_fit(tmp_path: Path) -> None:
    model = m.randomised(m.Home("post"))
    with pytest.raises(RewireError, match=r"not equivalent to what this model computes: .* outputs change by"):
        nm.rewire(model, "pre-no-final", example=(m.IDS,))
    body = nm.rewire(model, "pre-no-final", example=(m.IDS,), accept_inexact=True)
    assert body.rewiring.difference > 0.1
    body.load_state_dict(model.state_dict())  # the trap
    message = refused(model, body, (m.IDS,), tmp_path)
    assert "saved as 3 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))" in message
    guard.save(body, tmp_path / "b.safetensors", (m.IDS,))  # and as weights of its own kind they are taken
    twin = nm.rewire(m.Home("post"), "pre-no-final", example=(m.IDS,), accept_inexact=True)
    guard.load(twin, tmp_path / "b.safetensors")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("saved", "here"), [("before", "after"), ("after", "before")])
def test_rounding_before_or_after_the_gain_is_part_of_the_layout(
    saved: str, here: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    x = VECTORS[0].to(dtype)
    model, other = m.randomised(m.Rounded(saved)).to(dtype), m.Rounded(here, seed=1).to(dtype)
    message = refused(model, other, (x,), tmp_path)
    assert f"norms.* (3 of them): rounded {saved} the gain against rounded {here} the gain" in message
    guard.load(m.Rounded(saved, seed=1).to(dtype), tmp_path / "a.safetensors")
    guard.load(m.Rounded(here).float(), tmp_path / "a.safetensors")  # in one dtype both are one function
    guard.save(model.float(), tmp_path / "b.safetensors", VECTORS)
    guard.load(m.Rounded(here), tmp_path / "b.safetensors")


@pytest.mark.parametrize(
    ("kind", "order"), [(hf.LlamaForCausalLM, "before the gain"), (hf.GemmaForCausalLM, "after the gain")]
)
def test_llama_rounds_before_its_gain_and_gemma_after_it(kind: type[Any], order: str) -> None:
    model = m.encoder(kind, num_key_value_heads=2, head_dim=8)
    assert {norm.rounded for norm in guard.stamp(model.bfloat16(), (m.IDS,)).norms} == {order}
    assert {norm.rounded for norm in guard.stamp(model.float(), (m.IDS,)).norms} == {""}


def test_a_small_blenderbot_is_no_blenderbot(tmp_path: Path) -> None:
    message = refused(m.seq2seq(hf.BlenderbotSmallModel), m.seq2seq(hf.BlenderbotModel), SEQ2SEQ, tmp_path)
    assert "encoder.layernorm_embedding.weight, before the first block" in message
    assert "missing from the checkpoint (fatal): encoder.layer_norm.weight, after block 1" in message


def test_an_embedding_norm_that_was_deleted_from_a_file_is_fatal(tmp_path: Path) -> None:
    model = m.seq2seq(hf.MBartModel)
    stamp = guard.stamp(model, SEQ2SEQ)
    left = {name: one for name, one in model.state_dict().items() if "layernorm_embedding" not in name}
    guard.save(left, tmp_path / "a.safetensors", stamp=stamp)
    with pytest.raises(guard.WeightsError, match=r"encoder\.layernorm_embedding\.weight, before the first block"):
        guard.load(m.seq2seq(hf.MBartModel, seed=1), tmp_path / "a.safetensors")
