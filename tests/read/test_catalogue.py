"""Build with a placement, read, get the placement: the whole catalogue."""

import pytest
import torch

import normula as nm
from normula.catalog import entries
from normula.read import read

LAYERS = 4

TWO_SIDED = {"deepnorm-encoder", "deepnorm-decoder"}
"""Depths of the two sides of an encoder-decoder are in their constants; they are not built alone."""

NOT_UNDERSTOOD = {
    "residual", "siamese", "nanochat", "gpas", "prores", "hyper-connections", "mhc", "attention-residuals",
}  # fmt: skip
"""Several streams, gradients that are stopped, a factor that is 0 at the start of training."""

ALONE = [one.name for one in entries() if one.name not in TWO_SIDED]


@pytest.mark.contract
@pytest.mark.parametrize("name", ALONE)
def test_a_placement_is_read_back(name: str) -> None:
    model = nm.build(nm.Spec(placement=name, layers=LAYERS, width=16, heads=2, hidden=32))
    reading = read(model, torch.randn(2, 5, 16))
    assert sum(stage.layers for stage in reading.stages) >= LAYERS - 1
    if name in NOT_UNDERSTOOD:
        assert {stage.block for stage in reading.stages} == {"unknown"}
        return
    placement = nm.placement(name)
    assert {stage.proof for stage in reading.stages} == {"replayed"}
    if placement.ranges:  # the layers of each range are a stage of their own
        assert len(reading.stages) == 2
    else:
        assert all(name in stage.names for stage in reading.stages)
        assert (reading.embed_norm, reading.final_norm) == (str(placement.embed) != "x", str(placement.final) != "x")
