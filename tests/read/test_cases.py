"""Troubles that people had with norms and residuals, each as a tiny model: what runs is read, not what is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normula.flow import flow
from normula.formula import Formula
from normula.read import read
from normula.record.reading import Reading
from tests.read import models as m
from tests.read.fixtures import built
from tests.read.test_findings import PerChannel, causal, trimmed

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
POST = "x = norm(x + attn(x)); x = norm(x + mlp(x))"
BARE = "x = x + attn(x); x = x + mlp(x)"

IDS = {"input_ids": [2, 7]}
PICTURE = {"pixel_values": [1, 3, 16, 16]}
SIDES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {**SIDES, "vocab_size": 100, "pad_token_id": 0}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tiny(cls: str, config: dict[str, Any], inputs: dict[str, list[int]]) -> tuple[Any, dict[str, Any]]:
    """A model of transformers with random weights, and arguments of its forward."""
    pytest.importorskip("transformers")
    model, _, kwargs = built({"source": "transformers", "cls": cls, "config": config, "inputs": inputs})
    return model, kwargs


def reading_of(cls: str, config: dict[str, Any], inputs: dict[str, list[int]]) -> Reading:
    model, kwargs = tiny(cls, config, inputs)
    return read(model, **kwargs)


def blocks(reading: Reading) -> list[str]:
    """The formula of each stage, all of them proved."""
    assert {stage.proof for stage in reading.stages} == {"replayed"}
    return [stage.block for stage in reading.stages]


def codes(reading: Reading) -> set[str]:
    return {finding.code for finding in reading.findings}


def evidence(reading: Reading, code: str) -> list[str]:
    return [finding.evidence for finding in reading.findings if finding.code == code]


def randomised(model: nn.Module) -> nn.Module:
    """The model with gains between 0.5 and 1.5 and with biases in its LayerNorms."""
    draws = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5, draws)
            nn.init.normal_(module.bias, 0.0, 0.3, draws)
    return model


def encoder(**options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(m.WIDTH, m.HEADS, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


# ---- one flag, the same keys, another placement

WAV2VEC2 = {
    **SIDES, "vocab_size": 20, "conv_dim": (8, 8), "conv_stride": (2, 2), "conv_kernel": (3, 3),
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
SOUND = {"input_values": [2, 200]}


def test_wav2vec2_of_either_flag_has_the_same_keys_and_is_read_as_what_it_is() -> None:
    base, x = tiny("Wav2Vec2Model", {**WAV2VEC2, "do_stable_layer_norm": False}, SOUND)
    large, _ = tiny("Wav2Vec2Model", {**WAV2VEC2, "do_stable_layer_norm": True}, SOUND)
    large.load_state_dict(base.state_dict())
    post, pre = read(base, **x), read(large, **x)
    assert (blocks(post), post.embed_norm, post.final_norm) == ([POST], True, False)
    assert (blocks(pre), pre.embed_norm, pre.final_norm) == ([PRE], False, True)


def test_the_norm_over_time_of_wav2vec2s_first_convolution_is_listed() -> None:
    """One mean for each channel, over the 99 steps of time that a kernel of 3 and a stride of 2 leave of 200."""
    group = reading_of("Wav2Vec2Model", {**WAV2VEC2, "feat_extract_norm": "group"}, SOUND)
    (norm,) = (one for one in group.norms if one.path.startswith("feature_extractor.conv_layers.0"))
    assert (norm.kind, norm.site, norm.axes, norm.width) == ("GroupNorm", "elsewhere", (-1,), 99)


@pytest.mark.parametrize(("groups", "axes"), [(m.WIDTH, (-1,)), (4, (-2, -1)), (1, (-2, -1))])
def test_the_axes_of_a_group_norm(groups: int, axes: tuple[int, ...]) -> None:
    def norm() -> nn.Module:
        return PerChannel(nn.GroupNorm(groups, m.WIDTH))

    reading = read(trimmed(m.pre, "norm1", "norm2", norm=norm), m.stream())
    assert {norm.axes for norm in reading.norms} == {axes}
    assert "norm-over-tokens" in codes(reading)
    assert "future-leaks" in codes(read(causal(norm), m.stream()))


@pytest.mark.negative
def test_a_group_norm_of_one_tokens_features_is_not_blamed() -> None:
    class PerToken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(4, m.WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x.flatten(0, 1)).view_as(x)

    reading = read(trimmed(m.pre, "norm1", "norm2", norm=PerToken), m.stream())
    assert {(norm.kind, norm.axes, norm.width) for norm in reading.norms} == {("GroupNorm", (-1,), m.WIDTH // 4)}
    assert not codes(reading) & {"norm-over-tokens", "width-tiny"}


@pytest.mark.parametrize("trained", [False, True])
def test_bloom_of_either_flag_is_told_apart_also_at_gain_1(trained: bool) -> None:
    sides = {"vocab_size": 100, "hidden_size": 16, "n_layer": 2, "n_head": 2}
    plain, ids = tiny("BloomModel", {**sides, "apply_residual_connection_post_layernorm": False}, IDS)
    normed, _ = tiny("BloomModel", {**sides, "apply_residual_connection_post_layernorm": True}, IDS)
    if trained:
        randomised(plain)
    normed.load_state_dict(plain.state_dict())
    pre, other = read(plain, **ids), read(normed, **ids)
    assert blocks(pre) == [PRE]
    assert "skip-from-normed" not in codes(pre)
    assert other.stages[0].names == ("normalised-residual",)
    assert "skip-from-normed" in codes(other)


@pytest.mark.parametrize("norm_first", [False, True])
def test_of_two_forwards_the_one_that_the_flag_chooses_is_read(norm_first: bool) -> None:
    class Layer(m.Block):
        def __init__(self) -> None:
            super().__init__(m.pre if norm_first else m.post)

        def forward_pre(self, x: Tensor) -> Tensor:
            return m.pre(self, x)

        def forward_post(self, x: Tensor) -> Tensor:
            return m.post(self, x)

        def forward(self, x: Tensor) -> Tensor:
            return self.forward_pre(x) if norm_first else self.forward_post(x)

    reading = read(m.Stack([Layer(), Layer()]), m.stream())
    assert blocks(reading) == [PRE if norm_first else POST]
    assert (reading.embed_norm, reading.final_norm, reading.eps) == (False, False, 1e-5)


def test_a_flag_that_no_code_reads_changes_nothing() -> None:
    class Flagged(m.Block):
        def __init__(self, norm_first: bool) -> None:
            super().__init__(m.post)
            self.norm_first = norm_first

    for flag in (False, True):
        assert blocks(read(m.Stack([Flagged(flag), Flagged(flag)]), m.stream())) == [POST]


# ---- families that are taken for each other


@pytest.mark.parametrize(
    ("cls", "block", "embed", "final"),
    [
        ("BertModel", POST, True, False),
        ("MegatronBertModel", PRE, False, True),
        ("RobertaModel", POST, True, False),
        ("RobertaPreLayerNormModel", PRE, True, True),
    ],
)
def test_relatives_of_bert(cls: str, block: str, embed: bool, final: bool) -> None:
    reading = reading_of(cls, TEXT, IDS)
    assert (blocks(reading), reading.embed_norm, reading.final_norm) == ([block], embed, final)
    assert reading.eps == 1e-12


@pytest.mark.parametrize(
    ("family", "pre", "embed", "final"),
    [
        ("Bart", False, True, False),
        ("MBart", True, True, True),
        ("Pegasus", True, False, True),
        ("Blenderbot", True, False, True),
        ("BlenderbotSmall", False, True, False),
    ],
)
def test_relatives_of_bart(family: str, pre: bool, embed: bool, final: bool) -> None:
    sides = {
        "vocab_size": 100, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    reading = reading_of(f"{family}Model", sides, {**IDS, "decoder_input_ids": [2, 7]})
    first, last = (PRE if pre else POST).split("; ")
    cross = "x = x + cross(norm(x))" if pre else "x = norm(x + cross(x))"
    assert blocks(reading) == [f"{first}; {last}", f"{first}; {cross}; {last}"]
    assert (reading.embed_norms, reading.final_norms) == ((embed, embed), (final, final))


def test_three_placements_that_are_called_post_norm_have_three_names() -> None:
    swin = dict(image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=4)
    branch = "x = x + norm(attn(x)); x = x + norm(mlp(x))"
    olmo2 = reading_of("Olmo2Model", {**TEXT, "num_key_value_heads": 1}, IDS)
    gemma2 = reading_of("Gemma2Model", {**TEXT, "num_key_value_heads": 1, "head_dim": 8}, IDS)
    swin2 = reading_of("Swinv2Model", swin, PICTURE)
    assert [blocks(olmo2), blocks(swin2)] == [[branch], [branch]]
    assert blocks(gemma2) == ["x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))"]
    for reading in (olmo2, swin2, gemma2):
        assert reading.stages[0].names
        assert "post" not in reading.stages[0].names
    assert not {*olmo2.stages[0].names} & {*gemma2.stages[0].names}


@pytest.mark.parametrize(
    ("cls", "config", "inputs", "eps"),
    [
        ("ViTModel", {**SIDES, "image_size": 16, "patch_size": 8}, PICTURE, 1e-12),
        ("GPT2Model", {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 100}, IDS, 1e-5),
    ],
)
def test_epsilon_is_read_at_every_norm(cls: str, config: dict[str, Any], inputs: Any, eps: float) -> None:
    reading = reading_of(cls, config, inputs)
    assert [norm.eps for norm in reading.norms] == [pytest.approx(eps)] * 5
    assert "eps-unusual" not in codes(reading)


@pytest.mark.parametrize("eps", [1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("deviation", [1e-2, 1e-3])
@pytest.mark.parametrize("centred", [True, False])
def test_epsilon_is_the_one_that_small_rows_show(eps: float, deviation: float, centred: bool) -> None:
    """A row of deviation s leaves a norm with s / sqrt(s**2 + eps), which says what eps is."""
    model = m.stack(m.pre, norm=lambda: m.HandNorm(eps=eps, centred=centred)).double()
    x = m.stream().double()[..., :-1]
    x = torch.cat([x, -x.sum(-1, keepdim=True)], -1)
    x = deviation * x / x.std(-1, correction=0, keepdim=True)
    out = model.layers[0].norm1(x).std(-1, correction=0).mean().item()
    shown = deviation**2 * (out**-2 - 1)
    assert read(model, m.stream().double()).norms[0].eps == pytest.approx(shown, rel=0.1)


# ---- norms that are not where they seem to be


@pytest.mark.parametrize(
    ("step", "carries"),
    [
        (m.pre, True),
        (m.parallel, True),
        (m.res_post, True),
        (m.sandwich, True),
        (m.post, False),
        (m.normed_skip, False),
    ],
)
def test_a_formula_has_an_identity_path_where_ten_times_the_stream_moves_the_block_by_nine(
    step: m.Step, carries: bool
) -> None:
    model = randomised(m.stack(step))
    x = m.stream()
    with torch.no_grad():
        block = model.layers[0]
        moved = block(10 * x) - block(x)
    assert ((moved - 9 * x).norm() / (9 * x).norm() < 0.3) == carries
    (found,) = blocks(read(model, x))
    assert (str(Formula(found).skip) == "1") == carries


def test_a_site_is_found_from_what_runs_and_both_misleading_names_are_listed() -> None:
    class Misnamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.input_layernorm, self.final_layer_norm = nn.LayerNorm(m.WIDTH), nn.LayerNorm(m.WIDTH)
            self.attn, self.mlp = m.Attention(), m.Mlp()

        def forward(self, x: Tensor) -> Tensor:
            x = self.input_layernorm(x + self.attn(x))
            return x + self.mlp(self.final_layer_norm(x))

    reading = read(m.Stack([Misnamed(), Misnamed()]), m.stream())
    assert blocks(reading) == ["x = norm(x + attn(x)); x = x + mlp(norm(x))"]
    assert [norm.site for norm in reading.norms] == ["attn.norm_sum", "mlp.norm_in"] * 2
    assert evidence(reading, "name-misleads") == [
        "layers.0.input_layernorm is named for before a sublayer and stands at attn.norm_sum",
        "layers.0.final_layer_norm is named for the end of the stack and stands at mlp.norm_in",
    ]


@pytest.mark.parametrize("after", [False, True])
def test_a_residual_from_the_norm_is_shifted_post_ln_only_with_a_last_norm(after: bool) -> None:
    reading = read(trimmed(m.normed_skip, "norm1", "norm2", after=after), m.stream())
    assert reading.stages[0].names == ("normalised-residual",)
    (seen,) = evidence(reading, "skip-from-normed")
    assert "no identity path" in seen
    assert ("Post-LN with every norm one place later" in seen) == after
    assert ("final-norm-missing" in codes(reading)) != after


def test_a_norm_called_twice_and_one_never() -> None:
    reading = read(trimmed(m.shared_norm, "norm1", "norm2", after=True), m.stream())
    assert blocks(reading) == [PRE]
    assert codes(reading) == {"norm-reused", "norm-unused"}
    assert [one.split()[0] for one in evidence(reading, "norm-unused")] == ["layers.0.norm2", "layers.1.norm2"]
    assert evidence(reading, "norm-reused")[0] == "layers.0.norm1 normalises at 2 places"


def no_norm(b: m.Block, x: Tensor) -> Tensor:
    x = x + b.attn(x)
    return x + b.mlp(x)


def dropped(b: m.Block, x: Tensor) -> Tensor:
    """Each norm is computed, and the stream goes on from before it."""
    x = x + b.attn(x)
    b.norm1(x)
    x = x + b.mlp(x)
    b.norm2(x)
    return x


def one_dropped(b: m.Block, x: Tensor) -> Tensor:
    """The MLP reads the norm's value, the residual is from before it."""
    x = x + b.attn(x)
    return b.norm2(x + b.mlp(b.norm1(x)))


def test_norms_that_are_declared_and_never_called() -> None:
    reading = read(trimmed(no_norm, "norm1", "norm2"), m.stream())
    assert (blocks(reading), reading.norm, len(evidence(reading, "norm-unused"))) == ([BARE], "none", 4)


def test_a_residual_that_bypasses_the_norm_shows_in_the_formula() -> None:
    reading = read(trimmed(one_dropped, "norm1", "norm2"), m.stream())
    assert blocks(reading) == ["x = x + attn(x); x = norm(x + mlp(norm(x)))"]
    assert "sublayer-unlike" in codes(reading)


def test_norms_whose_value_is_dropped_are_in_no_formula() -> None:
    reading = read(trimmed(dropped, "norm1", "norm2"), m.stream())
    assert (blocks(reading), reading.norm) == ([BARE], "none")


@pytest.mark.negative
@pytest.mark.parametrize("norm", [lambda: nn.LayerNorm(m.WIDTH), m.HandNorm], ids=["fused", "by hand"])
def test_a_norm_that_is_called_and_whose_value_is_dropped_is_unused(norm: Any) -> None:
    found = evidence(read(trimmed(dropped, "norm1", "norm2", norm=norm), m.stream()), "norm-unused")
    places = [f"layers.{layer}.norm{number}" for layer in (0, 1) for number in (1, 2)]
    assert found == [f"{one} is called, and nothing that the model returns depends on its value" for one in places]
    assert "norm-unused" not in codes(read(trimmed(one_dropped, "norm1", "norm2", norm=norm), m.stream()))


def test_flow_names_a_gain_that_gets_no_gradient() -> None:
    found = flow(trimmed(m.pre, "norm1", "norm2", "norm3", after=True), m.stream(), seeds=1)
    assert "no-gradient" in {finding.kind for finding in found.findings}


def test_flow_gives_a_gain_that_is_never_used_a_gradient_of_0() -> None:
    found = flow(trimmed(m.pre, "norm1", "norm2", "norm3", after=True), m.stream(), seeds=1)
    dead = {weight.name for weight in found.passes[0].weights if weight.gradient == 0.0}
    assert {name for name in dead if "norm" in name} == {
        f"layers.{layer}.norm3.{part}" for layer in (0, 1) for part in ("weight", "bias")
    }


def test_modules_whose_forward_is_called_directly_are_seen() -> None:
    def direct(b: m.Block, x: Tensor) -> Tensor:
        x = x + b.attn.forward(b.norm1.forward(x))
        return x + b.mlp.forward(b.norm2.forward(x))

    model = trimmed(direct, "norm1", "norm2", after=True)
    reading = read(model, m.stream())
    assert blocks(reading) == [PRE]
    assert [norm.parameters[0] for norm in reading.norms] == [
        "layers.0.norm1.weight", "layers.0.norm2.weight", "layers.1.norm1.weight", "layers.1.norm2.weight",
        "after.weight",
    ]  # fmt: skip
    assert codes(reading) == set()
    assert len(flow(model, m.stream(), seeds=1).passes[0].steps) == 4


def test_a_norm_with_a_changed_forward_is_not_read_as_the_fused_path_would_run_it() -> None:
    model = encoder().eval()
    for layer in model.layers:
        layer.norm1.forward = lambda x: x  # type: ignore[method-assign]
    with torch.no_grad():
        reading = read(model, m.stream())
    assert blocks(reading) == ["x = x + attn(x); x = norm(x + mlp(x))"]
    assert "fused-path" in codes(reading)


@pytest.mark.parametrize("train", [False, True])
def test_flow_measures_the_same_where_the_fused_path_would_run(train: bool) -> None:
    model = encoder(dropout=0.0)
    with torch.no_grad():
        steps = flow(model.train(train), m.stream(), seeds=1).passes[0].steps
    assert [step.name for step in steps] == ["attn", "mlp"] * 2
    assert steps == flow(model.train(not train), m.stream(), seeds=1).passes[0].steps


# ---- the last norm


def test_torch_encoder_of_pre_ln_without_a_norm_of_its_own_misses_the_last_one() -> None:
    assert codes(read(encoder(norm_first=True).train(), m.stream())) == {"final-norm-missing"}


@pytest.mark.parametrize("closed", [False, True])
def test_a_memory_that_no_norm_closed_is_named_with_its_encoder(closed: bool) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder(norm_first=True)
            self.encoder.norm = nn.LayerNorm(m.WIDTH) if closed else None
            layer = nn.TransformerDecoderLayer(m.WIDTH, m.HEADS, 32, batch_first=True, norm_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2, nn.LayerNorm(m.WIDTH))

        def forward(self, source: Tensor, x: Tensor) -> Tensor:
            return self.decoder(x, self.encoder(source))

    reading = read(Both().train(), m.stream(), m.stream())
    assert blocks(reading) == [PRE, "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))"]
    assert reading.final_norms == (closed, True)
    assert [one.partition(":")[0] for one in evidence(reading, "final-norm-missing")] == ["encoder.layers"] * (
        not closed
    )


def test_two_faults_at_once_are_both_named() -> None:
    reading = read(trimmed(m.query_only, "norm1", "norm2"), m.stream())
    assert codes(reading) >= {"query-only-normed", "final-norm-missing"}


# ---- numbers on the wrong side


def test_deepnorm_with_its_number_on_the_branch_and_its_norm_not_called() -> None:
    def tutorial(b: m.Block, x: Tensor) -> Tensor:
        x = x + 1.8612 * b.attn(x)
        return x + 1.8612 * b.mlp(x)

    reading = read(trimmed(tutorial, "norm1", "norm2"), m.stream())
    assert blocks(reading) == ["x = x + 1.8612 * attn(x); x = x + 1.8612 * mlp(x)"]
    assert codes(reading) == {"norm-unused"}


def test_rezero_with_its_gate_on_the_skip() -> None:
    def gated(b: m.Block, x: Tensor) -> Tensor:
        x = b.scale * x + b.attn(x)
        return b.scale * x + b.mlp(x)

    reading = read(trimmed(gated), m.stream())
    assert blocks(reading) == [str(Formula("x = gain * x + attn(x); x = gain * x + mlp(x)"))]
    assert "rezero" not in reading.stages[0].names


# ---- statistics of other tokens


def test_an_instance_norm_in_a_causal_stack_leaks_the_future() -> None:
    model = causal(lambda: PerChannel(nn.InstanceNorm1d(m.WIDTH, affine=True)))
    assert "future-leaks" in codes(read(model, m.stream()))


@pytest.mark.parametrize(("axes", "wrong"), [((-1,), False), ((-2,), True), ((-2, -1), True)])
def test_the_axes_of_a_norm_in_jax(axes: tuple[int, ...], wrong: bool) -> None:
    jax = pytest.importorskip("jax")
    up, down = (jax.random.normal(jax.random.key(seed), (2, m.WIDTH, m.WIDTH)) / 4 for seed in (0, 1))

    def model(parameters: Any, x: Any) -> Any:
        for gain, first, second in zip(*parameters, strict=True):
            centred = x - x.mean(axes, keepdims=True)
            n = centred / jax.numpy.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
            x = x + jax.nn.relu((n * gain) @ first) @ second
        return x

    reading = read(model, (jax.numpy.ones((2, m.WIDTH)), up, down), jax.numpy.asarray(m.stream().numpy()))
    assert [norm.axes for norm in reading.norms] == [axes, axes]
    assert ("norm-over-tokens" in codes(reading)) == wrong


# ---- what a branch adds


@pytest.mark.parametrize("cls", ["BloomModel", "MptModel"])
def test_a_branch_is_told_from_a_stream_that_was_added_inside_its_module(cls: str) -> None:
    bloom = {"hidden_size": 16, "n_layer": 2, "n_head": 2}
    mpt = {"d_model": 16, "n_layers": 2, "n_heads": 2, "expansion_ratio": 2}
    model, ids = tiny(cls, {"vocab_size": 100, **(bloom if cls == "BloomModel" else mpt)}, IDS)
    found = flow(randomised(model) if cls == "BloomModel" else model, inputs=ids, seeds=1)
    assert [step.name for step in found.passes[0].steps] == ["attn", "mlp"] * 2
    assert found.identity < 1e-6  # single precision, against the largest number of the stream


@pytest.mark.parametrize("gain", [1.0, 1e-5])
def test_with_a_norm_on_its_output_a_branch_has_the_size_of_the_norms_gain(gain: float) -> None:
    """RMS of gain * n is the gain; epsilon makes it smaller by 1e-5 / (2 variance)."""
    model = trimmed(m.res_post, "norm1", "norm2")
    for norm in (one for one in model.modules() if isinstance(one, nn.LayerNorm)):
        nn.init.constant_(norm.weight, gain)
    steps = flow(model, m.stream(), seeds=1).passes[0].steps
    assert [step.branch_rms for step in steps] == [pytest.approx(gain, rel=5e-3)] * 4


def test_flow_of_a_compiled_model_has_the_numbers_of_the_model() -> None:
    model = trimmed(m.pre, "norm1", "norm2", after=True)
    compiled = torch.compile(model, backend="eager")
    compiled(m.stream())
    assert flow(compiled, m.stream(), seeds=1).passes[0].steps == flow(model, m.stream(), seeds=1).passes[0].steps


def test_flow_is_the_same_whether_or_not_the_input_wants_a_gradient() -> None:
    model = trimmed(m.pre, "norm1", "norm2", after=True)
    plain = flow(model, m.stream(), seeds=1)
    assert flow(model, m.stream().requires_grad_(), seeds=1).passes == plain.passes


def test_the_first_layers_gradients_of_either_order_are_of_one_size() -> None:
    """The random direction of flow is not what a last norm removes; the sum of the output is."""
    first = {}
    for norm_first in (False, True):
        model = encoder(norm_first=norm_first, dropout=0.0)
        model.norm = nn.LayerNorm(m.WIDTH)
        first[norm_first] = flow(model, m.stream(), seeds=1).passes[0].steps[0].gradient
    assert 0.1 < first[False] / first[True] < 10


def test_flow_carries_what_was_read() -> None:
    found = flow(trimmed(m.normed_skip, "norm1", "norm2", after=True), m.stream(), seeds=1)
    assert [finding["code"] for finding in found.reading["findings"]] == ["skip-from-normed"]


# ---- what flow says of a model, and not of its sound twin


def kinds(model: nn.Module, x: Tensor) -> set[str]:
    return {finding.kind for finding in flow(model, x, seeds=1).findings}


def test_flow_says_that_layers_start_as_copies_of_one() -> None:
    copies, others = encoder(), encoder()
    others.layers[1] = encoder().layers[0]
    assert kinds(copies, m.stream()) - kinds(others, m.stream()) == {"layers-alike"}


def test_flow_says_that_a_norm_reads_rows_with_a_large_mean() -> None:
    model = trimmed(m.pre, "norm1", "norm2", after=True)
    assert kinds(model, m.stream() + 2000) - kinds(model, m.stream()) == {"large-mean", "bfloat16-rounding"}


@pytest.mark.negative
def test_a_mean_that_every_norm_removes_is_no_collapse() -> None:
    """Each LayerNorm subtracts it, so the output is what it was, up to the rounding of x + 2000."""
    model = trimmed(m.pre, "norm1", "norm2", after=True)
    with torch.no_grad():
        torch.testing.assert_close(model(m.stream() + 2000), model(m.stream()), rtol=0, atol=1e-2)
    assert "token-collapse" not in kinds(model, m.stream() + 2000)


def test_flow_says_that_a_norm_reads_constant_rows() -> None:
    model, x = trimmed(m.pre, "norm1", "norm2", after=True), m.stream()
    constant = x.clone()
    constant[0, 0] = 1.0
    assert kinds(model, constant) - kinds(model, x) == {"constant-rows"}
