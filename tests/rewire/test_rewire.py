"""What a rewired model computes, against other code: closed forms in float64, PyTorch's and transformers' own flags."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normula as nm
from normula.formula import Formula, Placement
from tests.rewire.models import Between, Block, Image, Indexed, Open, Whole, encoder, perturbed, stack, transformer

Layer = Callable[[Any, Tensor], Tensor]


def normed(norm: nn.Module, x: Tensor) -> Tensor:
    """LayerNorm by its definition, with a norm's parameters."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def pre(b: Any, x: Tensor) -> Tensor:
    x = x + b.attention(normed(b.first, x))
    return x + b.mlp(normed(b.second, x))


def post(b: Any, x: Tensor) -> Tensor:
    x = normed(b.first, x + b.attention(x))
    return normed(b.second, x + b.mlp(x))


def deepnorm(b: Any, x: Tensor) -> Tensor:
    a = (2 * 2) ** 0.25
    x = normed(b.first, a * x + b.attention(x))
    return normed(b.second, a * x + b.mlp(x))


def res_post(b: Any, x: Tensor) -> Tensor:
    x = x + normed(b.first, b.attention(x))
    return x + normed(b.second, b.mlp(x))


def parallel_two(b: Any, x: Tensor) -> Tensor:
    return x + b.attention(normed(b.first, x)) + b.mlp(normed(b.second, x))


def normalised(b: Any, x: Tensor) -> Tensor:
    n = normed(b.first, x)
    n = normed(b.second, n + b.attention(n))
    return n + b.mlp(n)


def none(b: Any, x: Tensor) -> Tensor:
    x = x + b.attention(x)
    return x + b.mlp(x)


FORMS: dict[str, tuple[Layer, bool]] = {
    "pre": (pre, True),
    "post": (post, False),
    "deepnorm": (deepnorm, False),
    "res-post": (res_post, True),
    "parallel-two-norms": (parallel_two, True),
    "none": (none, False),
}
"""Each placement's layer in closed form, and whether a norm closes the stack."""


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("how", ["pre", "post", "normalised"])
def test_a_rewired_model_computes_the_closed_form(how: str, to: str) -> None:
    model, (x,) = stack(how, double=True)
    new = nm.rewire(model, to, example=(x,), accept_inexact=True)
    layer, closes = FORMS[to]
    y = x
    for block in model.layers:
        if how == "normalised" and to in ("post", "deepnorm"):  # its second norm stands after attention's sum already
            block.first, block.second = block.second, block.first
        y = layer(block, y)
    if closes and how == "post":
        y = normed(nn.LayerNorm(16).double(), y)
    elif closes:
        y = normed(model.last, y)
    assert torch.allclose(new(x), y, atol=1e-11, rtol=0)


@pytest.mark.parametrize("to", ["peri", "layerscale", "mix-ln", "admin", "b2t", "parallel", "keel", "qk-norm", "ngpt"])
@pytest.mark.parametrize("how", ["pre", "post"])
def test_every_kind_of_placement_is_reached_and_read_back(how: str, to: str) -> None:
    model, example = stack(how, layers=4)
    new = nm.rewire(model, to, example=example, accept_inexact=True)
    placement = nm.placement(to)
    reading = nm.read(new, *example)
    assert {stage.proof for stage in reading.stages} == {"replayed"}
    assert reading.embed_norm == (str(placement.embed) != "x")
    assert reading.final_norm == (str(placement.final) != "x")
    assert new.rewiring.proof == "replayed"
    assert any(to in stage.names for stage in reading.stages) or to in ("qk-norm",)


def test_peri_puts_new_norms_with_gain_1_on_the_branches() -> None:
    model, (x,) = stack("pre", double=True)
    new = nm.rewire(model, "peri", example=(x,), accept_inexact=True)
    bare = nn.LayerNorm(16).double()
    y = x
    for b in model.layers:
        y = y + normed(bare, b.attention(normed(b.first, y)))
        y = y + normed(bare, b.mlp(normed(b.second, y)))
    assert torch.allclose(new(x), normed(model.last, y), atol=1e-11, rtol=0)
    assert [name for name, _ in new.layers[0].named_parameters() if "out" in name] == [
        "attn_norm_out.weight", "attn_norm_out.bias", "mlp_norm_out.weight", "mlp_norm_out.bias",
    ]  # fmt: skip


def test_positions_that_are_added_between_layers_stay() -> None:
    torch.manual_seed(0)
    model, x = perturbed(Between()).double(), torch.randn(2, 5, 16, dtype=torch.float64)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    y = x
    for place, block in enumerate(model.layers):
        y = post(block, y)
        y = y + model.positions[place] if place < 2 else y
    assert torch.allclose(new(x), y, atol=1e-11, rtol=0)


@pytest.mark.parametrize("to", ["layerscale", "dyt"])
def test_factors_and_norms_of_channels_that_come_first(to: str) -> None:
    torch.manual_seed(0)
    model, x = perturbed(Image()).double(), torch.randn(2, 16, 16, 16, dtype=torch.float64)
    new = nm.rewire(model, to, example=(x,), accept_inexact=True)
    for name, parameter in new.named_parameters():
        if "gain" in name or "norm" in name:
            nn.init.normal_(parameter)
    y = x
    for block in new.blocks:
        if to == "layerscale":
            y = y + block.conv_gain.reshape(16, 1, 1) * block.mixer(of_images(block.first, y))
            y = y + block.mlp_gain.reshape(16, 1, 1) * block.mlp(of_images(block.second, y))
        else:
            y = y + block.mixer(bent(block.conv_norm_in, y))
            y = y + block.mlp(bent(block.mlp_norm_in, y))
    last = new.blocks[-1].final_norm
    assert torch.allclose(new(x), bent(last, y) if to == "dyt" else of_images(last, y), atol=1e-11, rtol=0)


def of_images(norm: nn.Module, x: Tensor) -> Tensor:
    """LayerNorm of an image: over its pixels and channels, with a gain and a bias for each channel."""
    centred = x - x.mean((1, 2, 3), keepdim=True)
    size = (centred.square().mean((1, 2, 3), keepdim=True) + norm.eps).sqrt()
    return centred / size * norm.weight.reshape(16, 1, 1) + norm.bias.reshape(16, 1, 1)


def bent(norm: nn.Module, x: Tensor) -> Tensor:
    """DyT of channels that come first."""
    return torch.tanh(norm.alpha * x) * norm.weight.reshape(16, 1, 1) + norm.bias.reshape(16, 1, 1)


@pytest.mark.parametrize("to", ["qk-norm", "hybridnorm"])
def test_products_that_are_written_with_indices_are_normalised_as_others_are(to: str) -> None:
    model, (x,) = stack("pre", double=True)
    indexed = deepcopy(model)
    for block in indexed.layers:
        block.attention.__class__ = Indexed
    assert torch.allclose(indexed(x), model(x), atol=1e-12, rtol=0)
    one, other = (nm.rewire(each, to, example=(x,), accept_inexact=True) for each in (model, indexed))
    for new in (one, other):
        torch.manual_seed(1)
        for _, parameter in sorted(new.named_parameters()):
            nn.init.normal_(parameter, std=0.3)
    assert torch.allclose(one(x), other(x), atol=1e-11, rtol=0)


def test_ranges_of_depth_have_formulas_of_their_own() -> None:
    model, (x,) = stack("pre", layers=4, double=True)
    new = nm.rewire(model, "mix-ln", example=(x,), accept_inexact=True)
    y = post(model.layers[0], x)
    for b in model.layers[1:]:
        y = pre(b, y)
    assert torch.allclose(new(x), normed(model.last, y), atol=1e-11, rtol=0)


def test_a_formula_of_ones_own_with_depth_and_gain() -> None:
    model, (x,) = stack("pre", double=True)
    new = nm.rewire(model, "x + gain(0.5) * f(norm(x)) / l", example=(x,), accept_inexact=True)
    y = x
    for number, b in enumerate(model.layers, start=1):
        y = y + 0.5 / number * b.attention(normed(b.first, y))
        y = y + 0.5 / number * b.mlp(normed(b.second, y))
    assert torch.allclose(new(x), normed(model.last, y), atol=1e-11, rtol=0)
    assert {name for name, _ in new.named_parameters()} - {name for name, _ in model.named_parameters()} == {
        f"layers.{layer}.{word}_gain" for layer in (0, 1) for word in ("attn", "mlp")
    }


def test_pytorchs_own_flag_says_the_same() -> None:
    """norm_first=True, with a closing norm, is what Pre-LN means there; the weights are those of the Post-LN stack."""
    model, (x,) = encoder()
    other, _ = encoder(norm_first=True)
    other.norm = nn.LayerNorm(16)
    other.load_state_dict(model.state_dict(), strict=False)
    new = nm.rewire(model, "pre", example=(x,), accept_inexact=True)
    assert set(new.state_dict()) == set(other.state_dict())
    assert torch.allclose(new(x), other.eval()(x), atol=1e-6)
    back = nm.rewire(new, "post", example=(x,), accept_inexact=True)
    assert torch.allclose(back(x), model(x), atol=1e-6)


def test_opts_flag_says_the_same() -> None:
    pytest.importorskip("transformers")
    model, example = transformer("OPTModel", do_layer_norm_before=False)
    other, _ = transformer("OPTModel", do_layer_norm_before=True)
    other.load_state_dict(model.state_dict(), strict=False)
    nn.init.ones_(other.decoder.final_layer_norm.weight)
    nn.init.zeros_(other.decoder.final_layer_norm.bias)
    new = nm.rewire(model, "pre", example=example, accept_inexact=True)
    assert torch.allclose(new(**example)[0], other(**example)[0], atol=1e-5)
    back = nm.rewire(other, "post", example=example, accept_inexact=True)
    assert torch.allclose(back(**example)[0], model(**example)[0], atol=1e-5)


def test_blooms_flag_says_the_same() -> None:
    pytest.importorskip("transformers")
    model, example = transformer("BloomModel", apply_residual_connection_post_layernorm=False)
    other, _ = transformer("BloomModel", apply_residual_connection_post_layernorm=True)
    other.load_state_dict(model.state_dict())
    flagged = Placement(
        name="bloom's",
        formula=Formula("n = norm(x); x = n + attn(n); m = norm(x); x = m + mlp(m)"),
        embed=Formula("norm(x)"),
        final=Formula("norm(x)"),
    )
    new = nm.rewire(model, flagged, example=example, accept_inexact=True)
    assert torch.allclose(new(**example)[0], other(**example)[0], atol=1e-5)


def test_the_model_itself_stays_as_it_was() -> None:
    model, (x,) = stack("pre")
    before, state = model(x), deepcopy(model.state_dict())
    kinds = [type(module) for module in model.modules()]
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.zero_()
    assert torch.equal(model(x), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == kinds


def test_layers_that_are_no_modules_of_their_own() -> None:
    torch.manual_seed(0)
    model, x = perturbed(Open()).double(), torch.randn(2, 5, 16).double()
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    y = x
    for first, attention, second, mlp in model.layers:
        y = normed(first, y + attention(y))
        y = normed(second, y + mlp(y))
    assert torch.allclose(new(x), y, atol=1e-11, rtol=0)


def test_gradients_are_those_of_the_closed_form() -> None:
    model, (x,) = stack("pre", double=True)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    y = x
    for b in model.layers:
        y = post(b, y)
    y.square().sum().backward()
    new(x).square().sum().backward()
    old = dict(model.named_parameters())
    for name, parameter in new.named_parameters():
        assert torch.allclose(parameter.grad, old[name].grad, atol=1e-9), name


def test_it_may_be_rewired_again_and_back() -> None:
    model, (x,) = stack("pre")
    once = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    twice = nm.rewire(once, "peri", example=(x,), accept_inexact=True)
    back = nm.rewire(twice, "pre", example=(x,), accept_inexact=True)
    assert nm.read(once, x).stages[0].names[0] == "post"
    assert nm.read(twice, x).stages[0].names[0] == "peri"
    with torch.no_grad():
        final = dict(back.named_parameters())
        final["layers.1.final_norm.weight"].copy_(model.last.weight)
        final["layers.1.final_norm.bias"].copy_(model.last.bias)
    assert torch.allclose(back(x), model(x), atol=1e-6)


def test_the_block_of_the_tests_is_what_it_says() -> None:
    """The closed forms are of the model's own code too, so that a mistake in them shows."""
    for how, layer in (("pre", pre), ("post", post), ("normalised", normalised)):
        model, (x,) = stack(how, double=True)
        assert isinstance(model.layers[0], Block)
        assert torch.allclose(model.layers[0](x), layer(model.layers[0], x), atol=1e-12)


@pytest.mark.parametrize("is_post", [False, True])
@pytest.mark.parametrize("to", ["pre", "post"])
def test_a_model_whose_layers_and_stream_are_in_one_forward(is_post: bool, to: str) -> None:
    torch.manual_seed(0)
    model, ids = perturbed(Whole(post=is_post)).double(), torch.randint(0, 20, (2, 5))
    placement = nm.placement(to)
    wanted = Placement(
        name="w", formula=placement.formula, final=placement.final, embed=Formula("norm(x)" if is_post else "x")
    )
    new = nm.rewire(model, wanted, example=(ids,), accept_inexact=True)
    x = model.table(ids) + model.positions(torch.arange(5))
    x = normed(model.start, x) if is_post else x
    for first, attention, second, mlp in zip(model.first, model.attention, model.second, model.mlp, strict=True):
        if to == "post":
            x = normed(first, x + attention(x))
            x = normed(second, x + mlp(x))
        else:
            x = x + attention(normed(first, x))
            x = x + mlp(normed(second, x))
    if to == "pre":
        x = normed(nn.LayerNorm(16).double() if is_post else model.last, x)
    assert torch.allclose(new(ids), model.head(x), atol=1e-11, rtol=0)


def test_an_embedding_norm_comes_and_goes() -> None:
    torch.manual_seed(0)
    for model, example in (
        (perturbed(Whole()), (torch.randint(0, 20, (2, 5)),)),
        stack("pre"),
    ):
        with_norm = Placement(
            name="w", formula=Formula("x + f(norm(x))"), embed=Formula("norm(x)"), final=Formula("norm(x)")
        )
        new = nm.rewire(model, with_norm, example=example, accept_inexact=True)
        assert nm.read(new, *example).embed_norm
        back = nm.rewire(new, "pre", example=example, accept_inexact=True)
        assert torch.allclose(back(*example), model(*example), atol=1e-6)
