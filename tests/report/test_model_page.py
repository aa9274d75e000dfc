"""The page of a model: from records alone, without script or network, and honest about what is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import nn

import normula as nm
from normula.record import Flow, from_json, to_json
from normula.record.reading import ReadFinding, Reading, ReadStage
from normula.report.model_page import headline, model_page

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"


@pytest.fixture(scope="module")
def records() -> tuple[Reading, Flow]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(8), enable_nested_tensor=False)
    reading = nm.read(model, torch.randn(2, 5, 8))
    return reading, reading.flow(seeds=2)


def reading_of(*stages: ReadStage, **fields: Any) -> Reading:
    flags = (False,) * len(stages)
    empty: dict[str, Any] = {"norm": "none", "eps": None, "inner": (), "norms": (), "sublayers": (), "findings": ()}
    return Reading(stages=stages, **{"embed_norms": flags, "final_norms": flags, **empty, **fields})


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_records_from_files_give_the_same_page(records: tuple[Reading, Flow]) -> None:
    reading, flow = records
    page = model_page(reading, "mine", flow=flow, weights="those of the model", command="normula flow mine")
    other = model_page(
        from_json(Reading, to_json(reading)),
        "mine",
        flow=from_json(Flow, to_json(flow)),
        weights="those of the model",
        command="normula flow mine",
    )
    assert page == other
    assert not re.search(r"<script|src=|https?://(?!www\.w3\.org)|@import", page)


def test_what_matters_comes_first(records: tuple[Reading, Flow]) -> None:
    reading, flow = records
    text = model_page(reading, "mine", flow=flow)
    order = [
        "3 layers of Pre-LN, with a norm after the last.",
        "proved: replayed on real tensors",
        "In signal and gradient",
        "<strong>Size of the stream</strong>",
        'id="parts"',
        'id="measured"',
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_every_step_is_in_the_charts_and_in_the_table(records: tuple[Reading, Flow]) -> None:
    reading, flow = records
    page = model_page(reading, "mine", flow=flow)
    charts = re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL)
    assert len(charts) == 4
    for chart in charts:
        ET.fromstring(re.sub(r"&(?!amp|lt|gt|quot|#)\w+;", "", chart))
    rows = re.findall(r'<th scope="row">(\d (?:attn|mlp))</th>', page)
    assert rows == [f"{layer} {name}" for layer in (1, 2, 3) for name in ("attn", "mlp")]


def test_names_of_a_hostile_model_are_text() -> None:
    stage = ReadStage(where="<script>alert(1)</script>", layers=1, block=PRE, names=("pre",), proof="replayed")
    finding = ReadFinding(code="x", evidence="<img src=x>", remedy="<b>no</b>")
    page = model_page(reading_of(stage, findings=(finding,)), "<i>title</i>")
    assert "<script>" not in page
    assert "<img" not in page
    assert "<i>title" not in page


def test_what_was_not_measured_says_why() -> None:
    stage = ReadStage(where="h", layers=2, block=PRE, names=("pre",), proof="replayed")
    page = model_page(reading_of(stage), "mine", without_flow="It could not be measured: no gradients.")
    assert "It could not be measured: no gradients." in page
    assert 'class="chart"' not in page


@pytest.mark.parametrize(
    ("reading", "sentence"),
    [
        (reading_of(), "No residual stream was found in this model."),
        (
            reading_of(ReadStage(where="h", layers=1, block="unknown", seen="two sums")),
            "1 layer that is not understood.",
        ),
        (
            reading_of(ReadStage(where="h", layers=2, block="x = x + mlp(norm(x))")),
            "2 layers of a placement without a known name, with no norm before the first or after the last.",
        ),
        (
            reading_of(
                ReadStage(where="a", layers=2, block=PRE, names=("pre",)),
                ReadStage(where="b", layers=3, block="unknown"),
                embed_norms=(True, False),
                final_norms=(False, True),
            ),
            "2 layers of Pre-LN and 3 layers that are not understood, with a norm before the first and after the last.",
        ),
    ],
)
def test_the_headline_claims_no_more_than_is_known(reading: Reading, sentence: str) -> None:
    assert headline(reading) == sentence


def test_a_void_measurement_is_in_the_verdict(records: tuple[Reading, Flow]) -> None:
    reading, flow = records
    void = replace(flow, findings=(replace(flow.findings[0], weight="void", text="Void: blind."), *flow.findings))
    text = words(model_page(reading, "mine", flow=void))
    assert text.index("VOID Void: blind.") < text.index("Findings")
