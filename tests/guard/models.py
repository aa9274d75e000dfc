"""Small models whose checkpoints fit each other and should not."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

IDS = torch.tensor([[5, 9, 3, 11, 7, 4, 8, 2], [4, 3, 6, 12, 5, 9, 10, 2]])
DECODED = IDS[:, :6].contiguous()
SOUND = torch.linspace(-1, 1, 400).repeat(1, 2).sin()
SMALL: dict[str, Any] = dict(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)


def made(kind: type[Any], seed: int = 0, **settings: Any) -> Any:
    """A model of transformers from a config of its class, from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(kind.config_class(**settings)).eval()


def randomised(model: nn.Module, seed: int = 1) -> nn.Module:
    """A model with gains from 0.5 to 1.5 and biases of deviation 0.3, as training leaves them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if one.dim() == 1:
                is_gain = name.endswith("weight")
                noise = (
                    torch.rand(one.shape, generator=generator)
                    if is_gain
                    else torch.randn(one.shape, generator=generator)
                )
                one.copy_(0.5 + noise if is_gain else 0.3 * noise)
    return model


def bloom(residual_after: bool, seed: int = 0) -> Any:
    return made(
        hf.BloomForCausalLM,
        seed,
        vocab_size=32,
        hidden_size=16,
        n_layer=2,
        n_head=2,
        apply_residual_connection_post_layernorm=residual_after,
    )


def wav2vec2(stable: bool, seed: int = 0) -> Any:
    return made(
        hf.Wav2Vec2Model,
        seed,
        do_stable_layer_norm=stable,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=[16, 16],
        conv_kernel=[10, 3],
        conv_stride=[5, 2],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        vocab_size=32,
    )


def opt(seed: int = 0, **settings: Any) -> Any:
    return made(
        hf.OPTForCausalLM,
        seed,
        **{**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 32},
        **settings,
    )


def falcon(new: bool, seed: int = 0) -> Any:
    return made(
        hf.FalconForCausalLM,
        seed,
        **SMALL,
        new_decoder_architecture=new,
        num_kv_heads=2,
        num_ln_in_parallel_attn=2 if new else 1,
    )


def encoder(kind: type[Any], seed: int = 0, **settings: Any) -> Any:
    return made(kind, seed, **SMALL, intermediate_size=32, max_position_embeddings=32, **settings)


def seq2seq(kind: type[Any], seed: int = 0, **settings: Any) -> Any:
    sizes = dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2)
    sizes |= dict(encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=32, max_position_embeddings=32)
    return made(kind, seed, **sizes, **settings)


def stack(norm_first: bool, seed: int = 0, *, width: int = 16, eps: float = 1e-5, norm: bool = False) -> nn.Module:
    """A stack of torch's own layers, each with weights of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=norm_first, layer_norm_eps=eps)
        made = nn.TransformerEncoder(layer, 3, nn.LayerNorm(width) if norm else None, enable_nested_tensor=False)
        for one in made.parameters():
            if one.dim() > 1:
                nn.init.xavier_uniform_(one)
    return made.eval()


def stack_of_ids(norm_first: bool, seed: int = 0) -> nn.Module:
    """A stack of torch's own layers that predicts the next token."""

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.stack, self.head = nn.Embedding(32, 16), stack(norm_first, seed), nn.Linear(16, 32)

        def forward(self, input_ids: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
            found: Tensor = self.head(self.stack(self.embed(input_ids), mask=mask, is_causal=True))
            return found

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Causal().eval()


class Block(nn.Module):
    """A layer written by hand; `kind` says where its norms are."""

    def __init__(self, kind: str, width: int = 16, eps: float = 1e-5) -> None:
        super().__init__()
        self.kind = kind
        self.n1, self.n2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "post":
            x = self.n1(x + self.mixed(x))
            return self.n2(x + self.mlp(x))
        h = self.n1(x)
        x = (h if self.kind == "normalised residual" else x) + self.mixed(h)
        h = self.n2(x)
        return (h if self.kind == "normalised residual" else x) + self.mlp(h)

    def mixed(self, x: Tensor) -> Tensor:
        found: Tensor = self.attn(x, x, x, need_weights=False)[0]
        return found

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x)))


class Rounding(nn.Module):
    """An RMSNorm whose statistics are in float32, and the stream's dtype comes before or after the gain."""

    def __init__(self, order: str, width: int = 16) -> None:
        super().__init__()
        self.order, self.weight = order, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype) if self.order == "before" else (self.weight.float() * h).to(x.dtype)


class Rounded(nn.Module):
    """Layers with such norms."""

    def __init__(self, order: str, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.norms = nn.ModuleList(Rounding(order) for _ in range(3))
            self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            x = x + mlp(norm(x))
        return x


class Variant(nn.Module):
    """A layer that knows two variants by name, and leaves its norms out under any other: what an upgrade may do."""

    def __init__(self, variant: str | None = None, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.variant = variant
            self.blocks = nn.ModuleList(Block("post") for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            assert isinstance(block, Block)
            x = x + block.mixed(block.n1(x) if self.variant == "prelayernorm" else x)
            x = block.n1(x) if self.variant == "aiayn" else x
            x = x + block.mlp(block.n2(x) if self.variant == "prelayernorm" else x)
            x = block.n2(x) if self.variant == "aiayn" else x
        return x


class Home(nn.Module):
    """A model of one's own, with buffers that other versions of it do not have."""

    def __init__(self, kind: str = "pre", seed: int = 0, *, buffer: bool = False, eps: float = 1e-5) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Embedding(32, 16)
            self.blocks = nn.ModuleList(Block(kind, eps=eps) for _ in range(3))
            self.final = nn.LayerNorm(16) if kind == "pre" else nn.Identity()
            self.head = nn.Linear(16, 32)
        if buffer:
            self.register_buffer("steps_seen", torch.tensor(12))
        self.eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final(x))
