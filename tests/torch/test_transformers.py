"""Four models of the transformers library, from small random configurations, with their weights mapped across."""

import re
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import normula as nm

transformers = pytest.importorskip("transformers")

V, D, H, F, L, T = 50, 32, 4, 64, 3, 9
ROUNDING = 1e-5  # float32 through a few layers, values of size 1


def randomised(model: nn.Module) -> nn.Module:
    """Every parameter moved off its start, so that gains and biases count."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def mapped(theirs: nn.Module, names: Mapping[str, str], change: Callable[[str, Tensor], Tensor] = lambda name, t: t):
    """Their state dict under our names; `names` are patterns, <n> for the number of the layer."""
    found = {}
    for theirs_name, tensor in theirs.state_dict().items():
        for pattern, name in names.items():
            match = re.fullmatch(pattern.replace("<n>", r"(\d+)"), theirs_name)
            if match:
                place = match[1] if match.groups() else ""
                for ours_name, part in split(name.replace("<n>", place), change(theirs_name, tensor)):
                    found[ours_name] = part
    return found


def split(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """One matrix for q, k and v is three."""
    if "{qkv}" not in name:
        return [(name, tensor)]
    return [(name.replace("{qkv}", part), piece) for part, piece in zip("qkv", tensor.chunk(3), strict=True)]


def loaded(spec: nm.Spec, weights: Mapping[str, Tensor]) -> nn.Module:
    """Our model with their weights; every one of ours must come from theirs."""
    model = nm.build(spec).eval()
    unused = {name for name in model.state_dict() if name == "head.weight"}
    missing = set(model.state_dict()) - set(weights) - unused
    assert not missing, f"no weight of theirs for {sorted(missing)}"
    assert set(weights) <= set(model.state_dict())
    model.load_state_dict({**model.state_dict(), **weights})
    return model


def ids(seed: int = 0, length: int = T) -> Tensor:
    return torch.randint(0, V, (2, length), generator=torch.Generator().manual_seed(seed))


MASK = torch.tensor([[True] * T, [True] * (T - 3) + [False] * 3])


@pytest.mark.oracle
def test_gpt2() -> None:
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=T, n_embd=D, n_layer=L, n_head=H, n_inner=F, bos_token_id=0, eos_token_id=0
    )
    theirs = randomised(transformers.GPT2Model(config))
    names = {
        "wte.weight": "embed.tokens.weight",
        "wpe.weight": "embed.positions.weight",
        "ln_f.weight": "final.norm.weight",
        "ln_f.bias": "final.norm.bias",
    }
    sites = {
        "ln_1": "attn.norm_in",
        "attn.c_attn": "attn.f.{qkv}",
        "attn.c_proj": "attn.f.o",
        "ln_2": "mlp.norm_in",
        "mlp.c_fc": "mlp.f.up",
        "mlp.c_proj": "mlp.f.down",
    }
    for part in ("weight", "bias"):
        names |= {f"h.<n>.{site}.{part}": f"layers.<n>.{ours}.{part}" for site, ours in sites.items()}
    weights = mapped(theirs, names, lambda name, t: t.t() if ".c_" in name and t.ndim == 2 else t)
    spec = nm.Spec(
        placement="pre", layers=L, width=D, heads=H, hidden=F, vocab=V, context=T, causal=True, activation="gelu_tanh"
    )
    ours = loaded(spec, weights)
    expected = theirs(ids(), attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(ours.states(ids(), MASK).closed[MASK], expected[MASK], rtol=0, atol=ROUNDING)


@pytest.mark.oracle
def test_bert() -> None:
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=F,
        max_position_embeddings=T,
    )  # fmt: skip
    theirs = randomised(transformers.BertModel(config, add_pooling_layer=False))
    names = {
        "embeddings.word_embeddings.weight": "embed.tokens.weight",
        "embeddings.position_embeddings.weight": "embed.positions.weight",
    }
    sites = {
        "attention.self.query": "attn.f.q",
        "attention.self.key": "attn.f.k",
        "attention.self.value": "attn.f.v",
        "attention.output.dense": "attn.f.o",
        "attention.output.LayerNorm": "attn.norm_sum",
        "intermediate.dense": "mlp.f.up",
        "output.dense": "mlp.f.down",
        "output.LayerNorm": "mlp.norm_sum",
    }
    for part in ("weight", "bias"):
        names[f"embeddings.LayerNorm.{part}"] = f"embed.norm.{part}"
        names |= {f"encoder.layer.<n>.{site}.{part}": f"layers.<n>.{ours}.{part}" for site, ours in sites.items()}
    weights = mapped(theirs, names)
    # every token is of the first type here, so the type's row belongs to the positions
    weights["embed.positions.weight"] = (
        weights["embed.positions.weight"] + theirs.state_dict()["embeddings.token_type_embeddings.weight"][0]
    )
    spec = nm.Spec(
        placement="post", embed="norm(x)", layers=L, width=D, heads=H, hidden=F, vocab=V, context=T, eps=1e-12
    )
    ours = loaded(spec, weights)
    expected = theirs(ids(), attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(ours.states(ids(), MASK).closed[MASK], expected[MASK], rtol=0, atol=ROUNDING)


@pytest.mark.oracle
def test_llama() -> None:
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=2,
        intermediate_size=F, max_position_embeddings=T, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    theirs = randomised(transformers.LlamaModel(config))
    sites = {
        "input_layernorm": "attn.norm_in",
        "post_attention_layernorm": "mlp.norm_in",
        **{f"self_attn.{part}_proj": f"attn.f.{part}" for part in "qkvo"},
        **{f"mlp.{part}_proj": f"mlp.f.{part}" for part in ("gate", "up", "down")},
    }
    names = {"embed_tokens.weight": "embed.tokens.weight", "norm.weight": "final.norm.weight"}
    names |= {f"layers.<n>.{site}.weight": f"layers.<n>.{ours}.weight" for site, ours in sites.items()}
    spec = nm.Spec(
        placement="pre", norm="rmsnorm", eps=1e-6, layers=L, width=D, heads=H, kv_heads=2, hidden=F, vocab=V,
        causal=True, positions="rotary", gated=True, activation="silu", bias=False,
    )  # fmt: skip
    ours = loaded(spec, mapped(theirs, names))
    expected = theirs(ids(), attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(ours.states(ids(), MASK).closed[MASK], expected[MASK], rtol=0, atol=ROUNDING)


@pytest.mark.oracle
def test_t5() -> None:
    config = transformers.T5Config(
        vocab_size=V, d_model=D, d_kv=D // H, d_ff=F, num_layers=L, num_decoder_layers=2, num_heads=H, dropout_rate=0.0
    )
    theirs = randomised(transformers.T5Model(config))
    names = {"shared.weight": "embed.tokens.weight", "encoder.embed_tokens.weight": "encoder.embed.tokens.weight"}
    for stack, prefix, mlp in (("encoder", "encoder.", 1), ("decoder", "", 2)):
        table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names |= {
            table: f"{prefix}relative.weight",
            f"{stack}.final_layer_norm.weight": f"{prefix}final.norm.weight",
            f"{stack}.block.<n>.layer.0.layer_norm.weight": f"{prefix}layers.<n>.attn.norm_in.weight",
            f"{stack}.block.<n>.layer.{mlp}.layer_norm.weight": f"{prefix}layers.<n>.mlp.norm_in.weight",
            f"{stack}.block.<n>.layer.{mlp}.DenseReluDense.wi.weight": f"{prefix}layers.<n>.mlp.f.up.weight",
            f"{stack}.block.<n>.layer.{mlp}.DenseReluDense.wo.weight": f"{prefix}layers.<n>.mlp.f.down.weight",
        }
        names |= {
            f"{stack}.block.<n>.layer.0.SelfAttention.{part}.weight": f"{prefix}layers.<n>.attn.f.{part}.weight"
            for part in "qkvo"
        }
    names["decoder.block.<n>.layer.1.layer_norm.weight"] = "layers.<n>.cross.norm_in.weight"
    names |= {
        f"decoder.block.<n>.layer.1.EncDecAttention.{part}.weight": f"layers.<n>.cross.f.{part}.weight"
        for part in "qkvo"
    }
    same = dict(
        placement="pre", norm="rmsnorm", eps=1e-6, width=D, heads=H, hidden=F, vocab=V, activation="relu", bias=False,
        positions="relative", scale=1.0,
    )  # fmt: skip
    encoder = nm.Spec(layers=L, **same)
    spec = nm.Spec(layers=2, sublayers=("attn", "cross", "mlp"), causal=True, encoder=encoder, **same)
    ours = loaded(spec, mapped(theirs, names))
    source = ids(2, length=40)  # far enough for the logarithmic buckets
    expected = theirs(input_ids=source, decoder_input_ids=ids()).last_hidden_state
    closed = ours.states(ids(), source=source).closed
    torch.testing.assert_close(closed, expected, rtol=0, atol=2 * ROUNDING)  # no 1/sqrt(K): scores are larger
