"""`normula read`: models by name, pages and JSON, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from normula.cli import main

BERT = "x = norm(x + attn(x)); x = norm(x + mlp(x))"


def test_a_model_type_is_read_with_a_proof(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["read", "hf:bert", "--html", str(tmp_path / "bert.html")]) == 0
    out = capsys.readouterr().out
    assert f"12 x  {BERT}" in out
    assert "proved on a smaller twin" in " ".join(out.split())
    page = (tmp_path / "bert.html").read_text(encoding="utf-8")
    assert BERT in page
    assert "<svg" in page
    assert "encoder.layer.0.attention.output.LayerNorm" in page


def test_an_exported_program_is_read_as_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    torch.export.save(torch.export.export(model, (torch.randn(2, 5, 16),)), tmp_path / "model.pt2")
    assert main(["read", str(tmp_path / "model.pt2"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(stage["layers"], stage["block"]) for stage in found["stages"]] == [(3, BERT)]
    assert found["stages"][0]["names"] == ["post"]


def test_a_net_of_convolutions_has_no_stream_and_that_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "torch.nn:Identity", "--input", "input=2x8"]) == 0
    assert "no residual stream found" in capsys.readouterr().out


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hf:gtp2"], "did you mean 'gpt2'?"),
        (["gpt2"], "did you mean 'hf:gpt2'?"),
        (["weights.bin"], "pickles are never loaded"),
        (["no.such.module:make"], "there is no module"),
        (["hf:gpt2", "--input", "nonsense"], "input_ids=2x8"),
        (["hf:gpt2", "--html", "no/such/folder/page.html"], "no/such/folder"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["read", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_a_model_is_measured_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "hf:gpt2", "--seeds", "1"]) == 0
    captured = capsys.readouterr()
    assert "x = x + attn(norm(x)); x = x + mlp(norm(x))" in captured.out
    assert "skip alone" in captured.out
    assert "measured on a smaller twin" in captured.err


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hf:gpt2", "--layers", "3", "--steps", "5"], "--layers, --steps belong to stacks that are built"),
        (["pre", "--input", "x=2x8"], "--input belongs to a model that is read"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flow", *words]) == 2
    assert message in capsys.readouterr().err
