"""`normula read`: models by name, pages and JSON, and what is refused."""

import json
import os
import pickle
import re
import sys
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
    assert "weights random, as its config starts a training" in captured.err


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


# ---- the page of a model


def the_page(path: Path) -> str:
    """A page that needs no network and no script."""
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"<script|src=|https?://(?!www\.w3\.org)", page)
    return page


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of somebody's own models."""
    (tmp_path / "own_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return "own_models"


MODELS = """
import torch
from torch import nn


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), (torch.randn(2, 5, 16),)


def meta():
    with torch.device("meta"):
        return encoder()


class Fails(nn.Linear):
    def forward(self, x):
        raise KeyError("a key that is not there")


def fails():
    return Fails(8, 8), (torch.randn(2, 8),)


class Later(nn.Linear):
    calls = 0

    def forward(self, x):
        Later.calls += 1
        if Later.calls > 1:
            raise IndexError("not twice")
        return super().forward(x)


def later():
    return Later(8, 8), (torch.randn(2, 8),)


class Objects(nn.Linear):
    def forward(self, graph, nodes):
        return super().forward(graph["x"]) + nodes.y


def objects():
    return Objects(8, 8)


class Bare(nn.Module):
    def forward(self, x):
        return x + torch.tanh(x)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), (torch.randn(1, 3, 16, 16),)


class Mute(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = encoder()[0]

    @torch.no_grad()
    def forward(self, x):
        return self.inside(x)


def mute():
    return Mute(), (torch.randn(2, 5, 16),)
"""


@pytest.mark.parametrize("command", ["read", "flow"])
def test_one_page_has_the_reading_and_the_flow(models: str, command: str, tmp_path: Path) -> None:
    assert main([command, f"{models}:encoder", "--html", str(tmp_path / "page.html")]) == 0
    page = the_page(tmp_path / "page.html")
    assert "3 layers of Pre-LN without a final norm" in page
    assert "final-norm-missing" in page
    assert "layers.2.norm1" in page
    assert page.count('class="chart"') == 4
    assert "Of a gradient of 1 at the output" in page


def test_a_model_of_moderate_size_is_measured_at_its_own_depth(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {"model_type": "gpt2", "n_layer": 5, "n_embd": 768, "n_head": 4, "vocab_size": 50_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["flow", f"hf:{tmp_path}", "--seeds", "1", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [step["layer"] for step in found["passes"][0]["steps"]] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found["identity"] < 1e-5
    assert "weights random, as its config starts a training" in captured.err


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("meta", "A model on the meta device computes no values"),
        ("mute", "Does the forward run under no_grad?"),
        ("convolutions", "the model has no residual stream"),
    ],
)
def test_a_page_without_a_flow_says_why(models: str, model: str, why: str, tmp_path: Path) -> None:
    assert main(["read", f"{models}:{model}", "--html", str(tmp_path / "page.html")]) == 0
    page = the_page(tmp_path / "page.html")
    assert why in page
    assert 'class="chart"' not in page


# ---- what a careless user gives


@pytest.mark.parametrize("command", ["read", "flow"])
@pytest.mark.parametrize("model", ["convolutions", "Bare"])
def test_no_residual_stream_and_no_parameters_are_answers(
    models: str, command: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"{models}:{model}", *(["--input", "x=2x8"] if model == "Bare" else [])]) == 0
    assert "no residual stream" in " ".join(capsys.readouterr().out.split())


@pytest.mark.negative
@pytest.mark.parametrize("command", ["read", "flow"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("fails", "raises with these inputs (KeyError: 'a key that is not there', own_models.py line 18)"),
        ("later", "its forward raises IndexError (not twice)"),
        ("objects", "pass them as --input name=shape; it takes graph, nodes"),
        ("encoder --input=src=2x5x7", "raises with these inputs"),
        ("encoder --input=src=2x5", "raises with these inputs"),
    ],
)
def test_a_model_that_does_not_run_is_refused_in_one_line(
    models: str, command: str, model: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *f"{models}:{model}".split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.negative
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "gtp2"}', "is of type 'gtp2', which transformers"),
        ('{"n_layer": 3}', "does not say its model_type"),
        ("weights", "is no JSON"),
    ],
)
def test_a_config_that_is_none_is_refused(
    config: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(config)
    assert main(["read", f"hf:{tmp_path / 'config.json'}"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.negative
def test_a_name_on_the_hub_without_a_network_says_what_to_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["read", "hf:somebody/some-model"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "pass a model type such as hf:gpt2, a config.json, or a folder with one" in line


@pytest.mark.negative
def test_a_pickle_is_never_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    (tmp_path / "model.pt2").write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    assert main(["read", str(tmp_path / "model.pt")]) == 2
    assert "pickles are never loaded" in capsys.readouterr().err
    assert main(["read", str(tmp_path / "model.pt2")]) == 2
    assert "no program of torch.export" in capsys.readouterr().err
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Makes a folder where it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["flow", "pre", "--html", "page.html"], "normula compare makes the page of stacks"),
        (["flow", "hf:gpt2", "--probe", "loss"], "nm.read(model, x).flow(loss=...)"),
        (["flow", "hf:gpt2", "--html", "no/such/folder/page.html"], "no/such/folder"),
    ],
)
def test_pages_and_losses_that_cannot_be(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
