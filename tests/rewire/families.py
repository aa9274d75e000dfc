"""Small models of many families, in float64, and how far apart two are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

import normula as nm

WIDTH = 16
VOCAB = 30
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": VOCAB}
GPT = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "vocab_size": VOCAB, "n_positions": 16}

Made = tuple[nn.Module, Any]


def _own(placement: str, **fields: Any) -> Callable[[], Made]:
    spec = {"vocab": VOCAB, "layers": 2, "width": WIDTH, "heads": 2, "hidden": 32, **fields}
    drawn = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
    example = (IDS,) if spec["vocab"] else (drawn.double(),)
    return lambda: (nm.build(nm.Spec(placement=placement, **spec)).double(), example)


def _hub(name: str, example: Any = (IDS,), **fields: Any) -> Callable[[], Made]:
    """A model of transformers by the start of its class's name and the rest of it."""

    def make() -> Made:
        import transformers

        kind, _, end = name.partition(" ")
        config = getattr(transformers, f"{kind}Config")(**fields)
        torch.manual_seed(0)
        return getattr(transformers, kind + end)(config).eval().double(), example

    return make


def _encoder(*, first: bool, final: bool) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=first, dropout=0.0)
        norm = nn.LayerNorm(WIDTH) if final else None
        model = nn.TransformerEncoder(layer, 2, norm=norm, enable_nested_tensor=False).eval().double()
        return model, (torch.randn(2, 5, WIDTH, dtype=torch.float64),)

    return make


class Layer(nn.Module):
    """norm(a*x + f(x)) by hand, with a number or one for each feature."""

    def __init__(self, factor: float | None) -> None:
        super().__init__()
        self.factor = factor
        if factor is None:
            self.first, self.second = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        one, other = (self.first, self.second) if self.factor is None else (self.factor, self.factor)
        scores = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2) / WIDTH**0.5, dim=-1)
        x = self.norm1(one * x + self.o(scores @ self.v(x)))
        return self.norm2(other * x + self.down(torch.relu(self.up(x))))


class Home(nn.Module):
    """A table and two such layers."""

    def __init__(self, factor: float | None) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer(factor) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return x


def _home(factor: float | None) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(0)
        return Home(factor).double(), (IDS,)

    return make


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
VIT = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
BOTH = {"input_ids": IDS, "decoder_input_ids": IDS}
T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": VOCAB}
BLOOM = {"hidden_size": WIDTH, "n_layer": 2, "n_head": 2, "vocab_size": VOCAB}
SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
BART = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDE.items()}

FAMILIES: Mapping[str, Callable[[], Made]] = {
    "own pre": _own("pre"),
    "own pre, rmsnorm": _own("pre", norm="rmsnorm"),
    "own post": _own("post"),
    "own post, no embedding": _own("post", vocab=None),
    "own deepnorm": _own("deepnorm"),
    "own admin": _own("admin"),
    "own admin, no embedding": _own("admin", vocab=None),
    "own keel": _own("keel"),
    "own peri": _own("peri"),
    "own parallel": _own("parallel"),
    "gpt2": _hub("GPT2 LMHeadModel", **GPT),
    "llama": _hub("Llama ForCausalLM", **SMALL, intermediate_size=32),
    "gemma": _hub(
        "Gemma2 ForCausalLM",
        **SMALL,
        intermediate_size=32,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=False,
    ),
    "bert": _hub("Bert Model", **SMALL, intermediate_size=32),
    "t5": _hub("T5 ForConditionalGeneration", BOTH, **T5),
    "opt": _hub("OPT ForCausalLM", **SMALL, ffn_dim=32, word_embed_proj_dim=WIDTH, max_position_embeddings=32),
    "vit": _hub("ViT ForImageClassification", (IMAGE,), **VIT, intermediate_size=32),
    "bloom": _hub("Bloom ForCausalLM", **BLOOM),
    "bloom, skip from the norm": _hub("Bloom ForCausalLM", **BLOOM, apply_residual_connection_post_layernorm=True),
    "falcon": _hub("Falcon ForCausalLM", **SMALL, parallel_attn=True, new_decoder_architecture=False, multi_query=True),
    "falcon, two norms": _hub("Falcon ForCausalLM", **SMALL, new_decoder_architecture=True, num_kv_heads=2),
    "mixtral": _hub("Mixtral ForCausalLM", **SMALL, intermediate_size=32, num_key_value_heads=2, num_local_experts=4),
    "olmo2": _hub("Olmo2 ForCausalLM", **SMALL, intermediate_size=32),
    "gpt-neox": _hub("GPTNeoX ForCausalLM", **SMALL, intermediate_size=32),
    "gpt-j": _hub("GPTJ ForCausalLM", **GPT, rotary_dim=4, n_inner=32),
    "bart": _hub(
        "Bart Model", BOTH, d_model=WIDTH, **BART, vocab_size=VOCAB, max_position_embeddings=32, pad_token_id=1
    ),
    "encoder layers, pre": _encoder(first=True, final=True),
    "encoder layers, post": _encoder(first=False, final=False),
    "encoder layers, post and final": _encoder(first=False, final=True),
    "home-made deepnorm": _home(1.7),
    "home-made admin": _home(None),
}


@torch.no_grad()
def random_vectors(model: nn.Module, *, equal_in_layers: bool = False, constant_before_last: bool = False) -> nn.Module:
    """A model with random gains and biases, its own.

    Args:
        model: changed in place.
        equal_in_layers: whether norms of one layer get the same values.
        constant_before_last: whether the norm before the last one gets one number as its gain and one as its bias.
    """
    for name, one in model.named_parameters():
        if one.dim() == 1:
            seed = crc32((name.rpartition(".")[2] if equal_in_layers else name).encode())
            generator = torch.Generator().manual_seed(seed)
            one.add_(0.4 * torch.randn(one.shape, generator=generator, dtype=one.dtype))
    if constant_before_last:
        norm = [module for module in model.modules() if isinstance(module, nn.LayerNorm)][-2]
        norm.weight.fill_(1.3)
        norm.bias.fill_(-0.2)
    return model


@torch.no_grad()
def apart(old: nn.Module, new: nn.Module, example: Any) -> float:
    """The largest difference of first outputs, over the largest output, both in evaluation mode."""
    args, kwargs = ((), example) if isinstance(example, dict) else (example, {})
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        before, after = (_first(one.eval()(*args, **kwargs)) for one in (old, new))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return float((before - after).abs().max() / before.abs().max())


def _first(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]
