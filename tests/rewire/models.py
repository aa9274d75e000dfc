"""Models that are rewired in the tests, with arguments of their forward: small, with random norms."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

D, H = 16, 2


class Attention(nn.Module):
    """Attention of two heads, without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (H, D // H)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Indexed(Attention):
    """The same with its products written with indices."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (H, D // H)) for f in (self.q, self.k, self.v))
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).div((D // H) ** 0.5).softmax(-1)
        return self.o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


class Block(nn.Module):
    """One layer; how it places its norms is told by a word."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "pre":
            x = x + self.attention(self.first(x))
            return x + self.mlp(self.second(x))
        if self.how == "post":
            x = self.first(x + self.attention(x))
            return self.second(x + self.mlp(x))
        if self.how == "parallel":
            n = self.first(x)
            return x + self.attention(n) + self.mlp(n)
        if self.how == "normalised":
            n = self.first(x)
            n = self.second(n + self.attention(n))
            return n + self.mlp(n)
        assert self.how == "shared"
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.first(x))


class Stack(nn.Module):
    """Layers, and a norm after them where they need one."""

    def __init__(self, how: str, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(how) for _ in range(layers))
        self.last = nn.Identity() if how == "post" else nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Open(nn.Module):
    """Layers that are no modules of their own: the forward of the whole runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                (
                    nn.LayerNorm(D),
                    Attention(),
                    nn.LayerNorm(D),
                    nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)),
                )
            )
            for _ in range(2)
        )
        self.last = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        for first, attention, second, mlp in self.layers:
            x = attention(first(x)) + x
            x = mlp(second(x)) + x
        return self.last(x)


class Image(nn.Module):
    """Convolutions on images as wide as they have channels, which come first."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ImageBlock() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class ImageBlock(nn.Module):
    """A layer of them, with a norm of the pixels and channels of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(1, D), nn.GroupNorm(1, D)
        self.mixer = nn.Conv2d(D, D, 3, padding=1)
        self.mlp = nn.Sequential(nn.Conv2d(D, D, 1), nn.GELU(), nn.Conv2d(D, D, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.first(x))
        return x + self.mlp(self.second(x))


class Between(nn.Module):
    """Layers with a table of positions that is added between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block("pre") for _ in range(3))
        self.positions = nn.Parameter(torch.randn(2, 5, D))

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if place < len(self.positions):
                x += self.positions[place]
        return x


def perturbed(model: nn.Module) -> nn.Module:
    """The same model with random vectors: at gain 1 and bias 0 placements agree that are not the same."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1:
                parameter += 0.5 * torch.rand(parameter.shape, generator=generator) - 0.25
    return model.eval()


def stack(how: str, layers: int = 2, *, double: bool = False) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    model, x = perturbed(Stack(how, layers)), torch.randn(2, 5, D)
    return (model.double(), (x.double(),)) if double else (model, (x,))


def encoder(layers: int = 2, **options: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    """PyTorch's own stack."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True, **options)
    return perturbed(nn.TransformerEncoder(layer, layers)), (torch.randn(2, 5, D),)


def transformer(name: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    """A model of transformers by the name of its class, with ids."""
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**{**SIZES[name], "vocab_size": 100, **options})
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    return perturbed(kind(config)), {"input_ids": torch.randint(3, 100, (2, 8))}


_USUAL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES: dict[str, dict[str, Any]] = {
    "GPT2Model": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
    "GPT2LMHeadModel": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
    "BertModel": {**_USUAL, "intermediate_size": 64},
    "AlbertModel": {**_USUAL, "intermediate_size": 64, "embedding_size": 32},
    "LlamaModel": {**_USUAL, "intermediate_size": 64, "num_key_value_heads": 2},
    "OPTModel": {**_USUAL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 32},
    "BloomModel": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "FalconModel": {**_USUAL, "bias": True, "alibi": False, "new_decoder_architecture": False},
}


class Whole(nn.Module):
    """A language model in one forward: its stream begins inside, from ids, and its layers are no modules."""

    def __init__(self, *, post: bool = False) -> None:
        super().__init__()
        self.post = post
        self.table, self.positions = nn.Embedding(20, D), nn.Embedding(8, D)
        self.first, self.second = (nn.ModuleList(nn.LayerNorm(D) for _ in range(2)) for _ in range(2))
        self.attention = nn.ModuleList(Attention() for _ in range(2))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for _ in range(2))
        self.start, self.last, self.head = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.positions(torch.arange(ids.shape[1]))
        if self.post:
            x = self.start(x)
            for first, attention, second, mlp in zip(self.first, self.attention, self.second, self.mlp, strict=True):
                x = first(x + attention(x))
                x = second(x + mlp(x))
            return self.head(x)
        for first, attention, second, mlp in zip(self.first, self.attention, self.second, self.mlp, strict=True):
            x = x + attention(first(x))
            x = x + mlp(second(x))
        return self.head(self.last(x))
