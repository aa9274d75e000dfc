"""The same weights through `torch.nn`'s own stacks, in float32."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from normula.spec import Spec
from normula.torch import build
from tests.near import FLOAT32, assert_near

WIDTH, HEADS, HIDDEN, LAYERS = 16, 4, 24, 2
SIZES = dict(width=WIDTH, heads=HEADS, hidden=HIDDEN, layers=LAYERS)
THEIRS = dict(d_model=WIDTH, nhead=HEADS, dim_feedforward=HIDDEN, dropout=0.0, batch_first=True)

PADDED = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
SOURCE_PADDED = torch.tensor([[True] * 2 + [False] * 3, [True] * 5])
PLACEMENT = {True: "pre", False: "post"}


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def randomised(module: nn.Module) -> nn.Module:
    """Every parameter away from its start: gains from 1, biases from 0."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return module


def attention_weights(path: str, theirs: nn.MultiheadAttention) -> dict[str, Tensor]:
    assert theirs.in_proj_weight is not None
    q, k, v = theirs.in_proj_weight.chunk(3)
    q_bias, k_bias, v_bias = theirs.in_proj_bias.chunk(3)
    matrices = {"q": (q, q_bias), "k": (k, k_bias), "v": (v, v_bias), "o": tuple(theirs.out_proj.parameters())}
    return {
        f"{path}.{name}.{kind}": tensor
        for name, pair in matrices.items()
        for kind, tensor in zip(("weight", "bias"), pair, strict=True)
    }


def named(path: str, theirs: nn.Module) -> dict[str, Tensor]:
    return {f"{path}.{name}": parameter for name, parameter in theirs.named_parameters()}


def layer_weights(path: str, layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> dict[str, Tensor]:
    """One of torch's layers under our names."""
    words = ["attn", "cross", "mlp"] if isinstance(layer, nn.TransformerDecoderLayer) else ["attn", "mlp"]
    norm = "norm_in" if layer.norm_first else "norm_sum"
    found = attention_weights(f"{path}.attn.f", layer.self_attn)
    if isinstance(layer, nn.TransformerDecoderLayer):
        found |= attention_weights(f"{path}.cross.f", layer.multihead_attn)
    found |= named(f"{path}.mlp.f.up", layer.linear1) | named(f"{path}.mlp.f.down", layer.linear2)
    for number, word in enumerate(words, start=1):
        found |= named(f"{path}.{word}.{norm}", layer.get_submodule(f"norm{number}"))
    return found


def stack_weights(prefix: str, stack: nn.TransformerEncoder | nn.TransformerDecoder) -> dict[str, Tensor]:
    """One of torch's stacks under our names, with its closing norm where there is one."""
    found = {} if stack.norm is None else named(f"{prefix}final.norm", stack.norm)
    for number, layer in enumerate(stack.layers):
        found |= layer_weights(f"{prefix}layers.{number}", layer)
    return found


def near(ours: Tensor, theirs: Tensor) -> None:
    assert_near(ours.detach().numpy(), theirs.detach().numpy(), FLOAT32)


@pytest.mark.parametrize("closes", [True, False], ids=["closing norm", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", PLACEMENT)
def test_an_encoder(norm_first: bool, activation: str, closes: bool) -> None:
    layer = nn.TransformerEncoderLayer(**THEIRS, activation=activation, norm_first=norm_first)
    closing = nn.LayerNorm(WIDTH) if closes else None
    theirs = randomised(nn.TransformerEncoder(layer, LAYERS, closing, enable_nested_tensor=False))
    final = "norm(x)" if closes else "x"
    ours = build(Spec(placement=PLACEMENT[norm_first], activation=activation, final=final, **SIZES))
    ours.load_state_dict(stack_weights("", theirs))
    x = torch.randn(2, 6, WIDTH)

    near(ours(x), theirs(x))
    near(ours(x, PADDED), theirs(x, src_key_padding_mask=~PADDED))


@pytest.mark.parametrize("norm_first", PLACEMENT)
def test_a_causal_layer(norm_first: bool) -> None:
    theirs = randomised(nn.TransformerEncoderLayer(**THEIRS, activation="gelu", norm_first=norm_first))
    ours = build(Spec(placement=PLACEMENT[norm_first], final="x", causal=True, **SIZES | {"layers": 1}))
    ours.load_state_dict(layer_weights("layers.0", theirs))
    x = torch.randn(2, 6, WIDTH)
    later = nn.Transformer.generate_square_subsequent_mask(6)

    near(ours(x), theirs(x, later, is_causal=True))
    near(ours(x, PADDED), theirs(x, later < 0, src_key_padding_mask=~PADDED))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch.nn.Transformer gives no way to turn it off
@pytest.mark.parametrize("masks", [False, True], ids=["no masks", "masks on both sides"])
@pytest.mark.parametrize("norm_first", PLACEMENT)
def test_an_encoder_and_a_decoder(norm_first: bool, masks: bool) -> None:
    """`torch.nn.Transformer` closes both stacks with a norm, wherever the others sit."""
    theirs = randomised(
        nn.Transformer(**THEIRS, num_encoder_layers=LAYERS, num_decoder_layers=LAYERS, norm_first=norm_first)
    )
    assert isinstance(theirs, nn.Transformer)
    same = dict(placement=PLACEMENT[norm_first], activation="relu", final="norm(x)", **SIZES)
    ours = build(Spec(**same, sublayers=("attn", "cross", "mlp"), causal=True, encoder=Spec(**same)))
    ours.load_state_dict(stack_weights("encoder.", theirs.encoder) | stack_weights("", theirs.decoder))
    source, target = torch.randn(2, 5, WIDTH), torch.randn(2, 6, WIDTH)

    later = nn.Transformer.generate_square_subsequent_mask(6) < 0
    paddings = dict(
        src_key_padding_mask=~SOURCE_PADDED, memory_key_padding_mask=~SOURCE_PADDED, tgt_key_padding_mask=~PADDED
    )
    expected = theirs(source, target, tgt_mask=later, **(paddings if masks else {}))
    mask, source_mask = (PADDED, SOURCE_PADDED) if masks else (None, None)
    near(ours(target, mask, source=source, source_mask=source_mask), expected)
    assert ours.encoder is not None
    near(ours.encoder(source), theirs.encoder(source))
