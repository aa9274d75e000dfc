"""`normula rewire MODEL --fold` and its kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from normula.cli import main

CONFIG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 30, "n_positions": 16}


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return f"hf:{tmp_path}"


def test_a_dry_run_says_what_would_be_done(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", model, "--fold", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "h.0.ln_1.weight, h.0.ln_1.bias -> h.0.attn.c_attn.weight" in said
    assert "left: ln_f: the model returns it" in said
    assert "not yet run" in said


def test_a_conversion_is_proved_and_told_in_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", model, "--centre", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["name"] == "centre"
    assert said["apart"] < 1e-9
    assert "h.1.ln_2: LayerNorm -> RMSNorm, eps 1e-05" in said["done"]


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shift"], "This is exact for Post-LN"),
        (["--fold", "--reinit", "xavier"], "--reinit would do nothing here"),
        (["--fold", "--dry-run", "--out", "new.safetensors"], "--out would do nothing here"),
        (["--to", "post", "--untie"], "--untie belongs to --fold"),
    ],
)
def test_bad_usage_is_told_in_a_line(
    model: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rewire", model, *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert not said.out
