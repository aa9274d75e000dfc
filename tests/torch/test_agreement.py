"""PyTorch equals the oracle in float64: the output, and the gradient of every parameter and of the input."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from normula import oracle
from normula.catalog import placements
from normula.formula import Placement
from normula.spec import Spec
from tests.cases import (
    BOTH_SIDES,
    CROSS,
    EXPERTS,
    GAINS,
    HEADS,
    LAYER,
    LEFT_PADDED,
    OTHERS,
    PADDED,
    SETTINGS,
    SOURCE_PADDED,
    THREE_PARTS,
    WITH_STARTS,
    as_small,
    random_inputs,
    random_weights,
    small,
    takes,
    title,
)
from tests.near import FLOAT64, assert_gradients_near, assert_near
from tests.torch.models import gradients, model_of

pytestmark = pytest.mark.oracle

Mask = NDArray[np.bool_]


def assert_agrees(
    spec: Spec,
    mask: Mask | None = None,
    source_mask: Mask | None = None,
    built: Spec | None = None,
    tokens: int = 5,
) -> None:
    """The same weights and inputs through both; the loss is a random direction in the output.

    `built` is what torch gets where it is not to be the same as the oracle's.
    """
    arrays, inputs = random_weights(spec), random_inputs(spec, tokens=tokens)
    source = None if spec.encoder is None else random_inputs(spec.encoder, seed=2, tokens=4)
    truth = oracle.run(spec, arrays, inputs, mask, source=source, source_mask=source_mask)
    direction = np.random.default_rng(3).standard_normal(truth.output.shape)
    input_gradient, parameter_gradients = truth.pullback(direction)

    model, x = model_of(built or spec, arrays), torch.tensor(inputs)
    if spec.vocab is None:
        x.requires_grad_()
    others = {"source": source, "source_mask": source_mask}
    output = model(
        x,
        None if mask is None else torch.tensor(mask),
        **{name: torch.tensor(array) for name, array in others.items() if array is not None},
    )
    torch.autograd.backward((output * torch.tensor(direction)).sum())

    assert_near(output.detach().numpy(), truth.output, FLOAT64, "output")
    found = {name: gradient.numpy() for name, gradient in gradients(model).items()}
    assert_gradients_near(found, parameter_gradients, FLOAT64)
    if x.grad is not None:
        assert_near(x.grad.numpy(), input_gradient, FLOAT64, "input's gradient")


@pytest.mark.parametrize(
    ("placement", "norm"),
    [
        pytest.param(placement, norm, id=f"{placement.name}-{norm}")
        for placement in placements()
        for norm in ("layernorm", "rmsnorm", "none")
        if takes(placement, norm)
    ],
)
def test_every_placement_as_a_language_model_with_padding(placement: Placement, norm: str) -> None:
    # a second layer without norms works on values of 1e5: its softmax is one key's, and the gradient's rounding grows
    spec = as_small(placement, norm=norm, layers=1 if norm == "none" else 2, vocab=7, causal=True)
    assert_agrees(spec, PADDED, None if spec.encoder is None else SOURCE_PADDED)


@pytest.mark.parametrize("norm", ["l2norm", "dyt", "derf"])
@pytest.mark.parametrize("placement", ["pre", "post", "peri"])
def test_the_other_kinds_of_norm(placement: str, norm: str) -> None:
    assert_agrees(small(placement, norm=norm, vocab=7, causal=True), PADDED)


@pytest.mark.parametrize("mask", [None, LEFT_PADDED], ids=["all", "padded"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("placement", ["pre", "post", LAYER], ids=["pre", "post", "layer"])
def test_every_setting(placement: str, setting: str, mask: Mask | None) -> None:
    assert_agrees(small(placement, layers=1, **SETTINGS[setting]), mask)


@pytest.mark.parametrize("fields", HEADS)
@pytest.mark.parametrize("over", ["width", "head"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "l2norm"])
def test_norms_of_queries_and_keys(norm: str, over: str, fields: dict[str, Any]) -> None:
    formula = "x + f(norm(x), qk=norm)"
    assert_agrees(small(formula, norm=norm, qk_norm=over, **({"heads": 4} | fields)), PADDED)


@pytest.mark.parametrize("fields", EXPERTS)
@pytest.mark.parametrize("placement", ["pre", "post", "x = x + attn(norm(x)) + moe(norm(x))"])
def test_a_mixture_of_experts(placement: str, fields: dict[str, Any]) -> None:
    assert_agrees(small(placement, sublayers=("attn", "moe"), experts=4, **fields), PADDED)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_positions_far_apart(positions: str, causal: bool) -> None:
    """From 128 tokens on, all relative distances share a bucket."""
    assert_agrees(small("pre", layers=1, positions=positions, causal=causal), tokens=150)


@pytest.mark.parametrize("masked", ["neither", "target", "source", "both"])
@pytest.mark.parametrize("placement", CROSS)
def test_an_encoder_and_a_decoder(placement: str, masked: str) -> None:
    encoder = small("post" if placement == "post" else "pre", width=12, heads=3, vocab=9, positions="learned")
    spec = small(
        CROSS[placement],
        sublayers=("attn", "cross", "mlp"),
        encoder=encoder,
        vocab=None if placement == "cross alone" else 7,
        causal=placement != "cross alone",
    )
    mask = PADDED if masked in ("target", "both") else None
    assert_agrees(spec, mask, SOURCE_PADDED if masked in ("source", "both") else None)


@pytest.mark.parametrize(("encoder", "decoder"), BOTH_SIDES, ids=str)
def test_ids_values_and_classes_on_both_sides(encoder: dict[str, Any], decoder: dict[str, Any]) -> None:
    spec = small("pre", sublayers=("attn", "cross", "mlp"), encoder=small("post", width=12, **encoder), **decoder)
    assert_agrees(spec, PADDED, SOURCE_PADDED)


def test_positions_of_decoder_and_encoder_are_their_own() -> None:
    encoder = small("pre", positions="relative")
    assert_agrees(small("pre", sublayers=("attn", "cross", "mlp"), encoder=encoder, positions="rotary", causal=True))


def test_a_source_of_which_nothing_is_real() -> None:
    spec = small("pre", sublayers=("attn", "cross", "mlp"), encoder=small("pre"), causal=True)
    assert_agrees(spec, source_mask=np.array([[False] * 4, [True] * 4]))


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("placement", OTHERS, ids=title)
def test_every_construct_of_the_notation(placement: Placement, norm: str) -> None:
    assert_agrees(small(placement, norm=norm, layers=3, vocab=7, causal=True), PADDED)


@pytest.mark.parametrize("formula", GAINS)
def test_gains_and_numbers_of_the_depth(formula: str) -> None:
    assert_agrees(small(formula, layers=3), PADDED)


def test_ranges_of_several_lengths() -> None:
    assert_agrees(small(THREE_PARTS, layers=4))


@pytest.mark.parametrize("block", WITH_STARTS)
def test_the_layers_of_published_models(block: str) -> None:
    fields: dict[str, Any] = {"encoder": small("pre")} if "cross" in block else {}
    if "moe" in block:
        fields |= {"experts": 3, "experts_used": 2}
    assert_agrees(small(block, layers=1, **fields), PADDED)


@pytest.mark.negative
@pytest.mark.parametrize(
    "other",
    [
        {"eps": 0.0101},
        {"activation": "gelu_tanh"},
        {"scale": 0.5},
        {"causal": False},
        {"rotary_base": 9999.0},
        {"placement": "x + 1.0000001 * f(norm(x))"},
    ],
    ids=str,
)
def test_a_neighbour_does_not_agree(other: dict[str, Any]) -> None:
    spec = small("pre", positions="rotary", heads=2, width=12, causal=True)
    assert_agrees(spec)
    with pytest.raises(AssertionError, match="output"):
        assert_agrees(spec, built=replace(spec, **other))
