"""`normula rewire`: the plan, the refusal, the files."""

import json
from pathlib import Path

import pytest
import torch

import normula as nm
from normula.cli import main
from tests.rewire.models import stack


def made() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A Post-LN stack, for the command line."""
    return stack("post")


MODEL = "tests.rewire.test_command:made"


def test_a_dry_run_prints_the_plan_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", "hf:bert", "--to", "peri", "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "x = norm(x + attn(x)); x = norm(x + mlp(x)) -> x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))" in out
    )
    assert "embed: - embeddings.LayerNorm" in out
    assert "epsilon 1e-12" in out
    assert "preserved: not known before it is run" in out


def test_what_is_not_equivalent_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", MODEL, "--to", "pre"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("normula rewire: pre is not equivalent to what this model computes")
    assert "--accept-inexact" in err
    assert err.count("\n") == 1


def test_the_new_weights_are_written_with_their_formula(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pre.safetensors"
    assert main(["rewire", MODEL, "--to", "pre", "--accept-inexact", "--out", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preserved"] == "parameters"
    assert found["difference"] > 0.01
    assert found["added"]["names"] == ["layers.1.final_norm.weight", "layers.1.final_norm.bias"]
    model, example = made()
    new = nm.rewire(model, "pre", example=example, reinit="xavier", seed=3)
    from normula import guard

    guard.load(new, file, example)
    assert torch.allclose(new(*example), nm.rewire(model, "pre", example=example, accept_inexact=True)(*example))
    with pytest.raises(ValueError, match="norm"):
        guard.load(model, file, example)


def test_weights_are_drawn_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", MODEL, "--to", "pre", "--reinit", "scaled"]) == 0
    assert "preserved: nothing: the weights were drawn anew" in " ".join(capsys.readouterr().out.split())


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([MODEL, "--to", "residual", "--accept-inexact"], "needs several streams"),
        ([MODEL, "--to", "prae"], "no placement is called 'prae'"),
        ([MODEL, "--to", "x + g(x)"], "g"),
        ([MODEL, "--to", "pre", "--dry-run", "--out", "f.safetensors"], "--dry-run changes nothing"),
        (["torch.nn:Identity", "--to", "pre"], "no residual stream"),
        ([MODEL, "--to", "pre", "--reinit", "luck"], "A rule for initial weights is one of"),
    ],
)
def test_bad_usage_is_refused_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
