"""Build with a placement, read, get the placement: the whole catalogue, in every framework."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

import normula as nm
from normula.catalog import entries
from normula.flax.linen import Stack as LinenStack
from normula.flax.nnx import Stack as NnxStack
from normula.formula import Formula
from normula.read import read
from normula.record.reading import Reading

SIZES: dict[str, Any] = {"layers": 2, "width": 8, "heads": 2, "hidden": 12}
RANGED: dict[str, Any] = {**SIZES, "layers": 4}
"""As few as have a layer of their own in each range: Mix-LN's first is a quarter."""

OPERATORS = [one.name for one in entries() if one.placement.operator is not None]
"""Registered operators mix several streams by matrices of numbers: the notation has no text for them to be read as."""

SIDES = ("deepnorm-encoder", "deepnorm-decoder")
"""The depths of both sides are in their constants: they are built and read together."""

WRITTEN = [one.name for one in entries() if one.name not in (*OPERATORS, *SIDES)]

UPDATES = 300
"""After so many, ProRes has let in 0.3 of the first layer's branches; after none it is the identity."""

SEVERAL = {
    "residual": (("d = x",), "b = attn(x); n = norm(x + b); c = mlp(n); d = d + b + c; x = norm(n + c)", "x + norm(d)"),
    "nanochat": (("y = x",), "x = gain*x + gain*y; x = x + attn(norm(x)); x = x + mlp(norm(x))", "norm(x)"),
    "siamese": (
        ("d = x",),
        "n = norm(x); b = attn(norm(n + norm(d))); d = d + b; n = norm(n + 0.5*b); "
        "b = mlp(norm(n + norm(d))); d = d + b; x = n + 0.5*b",
        "norm(norm(x) + norm(d))",
    ),
}  # Xie et al. 2023; nanochat's gpt.py; SiameseNorm, at its second layer: how they start, a layer, how they end


def given(shape: tuple[int, ...] = (2, 5, 8)) -> Any:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def in_torch(spec: nm.Spec, *inputs: Any, **settings: Any) -> Reading:
    model = nm.build(spec)
    model.training_step.fill_(settings.get("training_step", 0))
    source = {"source": torch.from_numpy(settings["source"])} if "source" in settings else {}
    return read(model, *map(torch.from_numpy, inputs), **source)


def in_linen(spec: nm.Spec, *inputs: Any, **settings: Any) -> Reading:
    model = LinenStack(spec)
    return read(model, model.start(), *map(jax.numpy.asarray, inputs), **settings)


def in_nnx(spec: nm.Spec, *inputs: Any, **settings: Any) -> Reading:
    return read(NnxStack(spec, unroll=True), *map(jax.numpy.asarray, inputs), **settings)


FRAMEWORKS = pytest.mark.parametrize("reading_in", [in_torch, in_linen, in_nnx], ids=["torch", "linen", "nnx"])


@pytest.mark.contract
@FRAMEWORKS
@pytest.mark.parametrize("name", WRITTEN)
def test_a_placement_is_read_back(name: str, reading_in: Any) -> None:
    placement = nm.placement(name)
    settings = {"training_step": UPDATES} if "step" in placement.formula.symbols else {}
    sizes = RANGED if placement.ranges else SIZES
    reading = reading_in(nm.Spec(placement=name, **sizes), given(), **settings)
    assert sum(stage.layers for stage in reading.stages) == sizes["layers"]
    assert {stage.proof for stage in reading.stages} == {"replayed"}, [stage.seen for stage in reading.stages]
    assert all(name in stage.names for stage in reading.stages)
    assert (reading.embed_norm, reading.final_norm) == ("norm" in str(placement.embed), str(placement.final) != "x")


@pytest.mark.contract
@FRAMEWORKS
@pytest.mark.parametrize("name", SEVERAL)
def test_several_streams_are_written_as_the_paper_has_them(name: str, reading_in: Any) -> None:
    streams, block, closing = SEVERAL[name]
    reading = reading_in(nm.Spec(placement=name, **SIZES), given())
    layers = [stage for stage in reading.stages for _ in range(stage.layers)]
    assert layers[1].block == str(Formula(block))
    assert {stage.streams for stage in layers} == {streams}
    assert {stage.closing for stage in layers} == {str(Formula(closing))}


@pytest.mark.contract
@FRAMEWORKS
def test_both_sides_of_deepnorm_are_read_back(reading_in: Any) -> None:
    sides: dict[str, Any] = {**SIZES, "layers": 3}
    spec = nm.Spec(
        placement="deepnorm-decoder",
        sublayers=("attn", "cross", "mlp"),
        encoder=nm.Spec(placement="deepnorm-encoder", **RANGED),
        **sides,
    )
    reading = reading_in(spec, given(), source=given((2, 4, 8)))
    assert [(stage.layers, *stage.names) for stage in reading.stages] == [(4, SIDES[0]), (3, SIDES[1])]
    # 0.81 (Le^4 Ld)^(1/16) and (3 Ld)^(1/4), with 4 and 3 layers: Wang et al., DeepNet, 2022, table in section 4
    assert [*sum((stage.constants for stage in reading.stages), ())] == pytest.approx([0.81 * 768 ** (1 / 16), 9**0.25])


@pytest.mark.contract
@FRAMEWORKS
@pytest.mark.parametrize("name", OPERATORS)
def test_a_registered_operator_is_not_taken_for_a_formula(name: str, reading_in: Any) -> None:
    reading = reading_in(nm.Spec(placement=name, **SIZES), given())
    assert {stage.block for stage in reading.stages} == {"unknown"}
    assert all(stage.seen for stage in reading.stages)


@pytest.mark.negative
def test_a_schedule_is_told_from_a_fixed_multiplier() -> None:
    reading = in_torch(nm.Spec(placement="x + 0.3 * f(norm(x))", **SIZES), given())
    assert [(stage.layers, stage.names) for stage in reading.stages] == [(2, ())]


@pytest.mark.negative
def test_before_the_first_update_a_schedule_that_starts_from_nothing_is_not_read() -> None:
    reading = in_torch(nm.Spec(placement="prores", **SIZES), given())
    assert {stage.block for stage in reading.stages} == {"unknown"}


@pytest.mark.negative
def test_after_the_schedule_prores_is_the_placement_that_it_ends_as() -> None:
    reading = in_torch(nm.Spec(placement="prores", **SIZES), given(), training_step=4000)
    assert [(stage.layers, "pre" in stage.names) for stage in reading.stages] == [(2, True)]


def test_learned_factors_that_multiply_one_another() -> None:
    """GPAS after three sublayers: its first gate's share of the stream goes through the later gates too."""
    spec = nm.Spec(placement="gpas", sublayers=("attn", "mlp", "mlp"), **SIZES)
    (stage,) = in_torch(spec, given()).stages
    assert (stage.layers, stage.proof) == (2, "replayed")
    assert "g*g2 * x" in stage.block
