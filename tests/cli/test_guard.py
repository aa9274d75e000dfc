"""`normula guard`: stamp, load, verify, check and show, and what is refused in one line."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Cli

FACTORY = """
import torch
from torch import nn

def post(first=False):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.ones(2, 5, 16).cumsum(1).sin()

def pre():
    return post(True)

def bare():
    return post()[0]

def failing():
    raise RuntimeError("no luck")
"""


@pytest.fixture(autouse=True)
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guarded_models.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("guarded_models", None)


def test_from_save_to_verify(cli: Cli) -> None:
    code, out, err = cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    assert (code, err) == (0, "")
    assert "2 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))   (replayed)" in out
    assert cli("guard", "load", "a.safetensors", "--model", "guarded_models:post").code == 0
    assert cli("guard", "verify", "a.safetensors", "--model", "guarded_models:post").code == 0
    code, out, _ = cli("guard", "show", "a.safetensors")
    assert "attn.norm_sum" in out
    code, out, _ = cli("guard", "show", "a.safetensors", "--json")
    assert json.loads(out)["stages"][0]["layers"] == 2


def test_what_a_stamp_knows_is_not_guessed(cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    for action in ("load", "verify"):
        assert cli("guard", action, "a.safetensors", "--model", "guarded_models:bare").code == 0


@pytest.mark.negative
@pytest.mark.parametrize("action", ["load", "verify"])
def test_another_formula_is_refused_in_one_line(action: str, cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    code, out, err = cli("guard", action, "a.safetensors", "--model", "guarded_models:pre")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "saved as 2 x (x = norm(x + attn(x))" in err
    assert "this model is 2 x (x = x + attn(norm(x))" in err


def test_what_is_allowed_is_echoed(cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    code, out, err = cli("guard", "load", "a.safetensors", "--model", "guarded_models:pre", "--allow")
    assert (code, err) == (0, "")
    assert "let through: saved as" in out
    _, out, _ = cli("guard", "load", "a.safetensors", "--model", "guarded_models:pre", "--allow", "--json")
    assert len(json.loads(out)["allowed"]) == 2


def test_a_missing_gain_and_the_pattern(cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    from safetensors import safe_open

    with safe_open("a.safetensors", "pt") as file:
        metadata = file.metadata()
    tensors = load_file("a.safetensors")
    del tensors["layers.1.norm2.weight"]
    save_file(tensors, "b.safetensors", metadata)
    code, _, err = cli("guard", "load", "b.safetensors", "--model", "guarded_models:post")
    assert code == 2
    assert "layers.1.norm2.weight, on the sum after the MLP" in err
    words = ("guard", "load", "b.safetensors", "--model", "guarded_models:post", "--allow-missing", "*.norm2.weight")
    code, out, _ = cli(*words)
    assert code == 0
    assert "let through: layers.1.norm2.weight was missing" in out


def test_weights_without_a_stamp_are_checked_and_stamped(cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    tensors = load_file("a.safetensors")
    save_file(tensors, "plain.safetensors")
    code, _, err = cli("guard", "load", "plain.safetensors", "--model", "guarded_models:post")
    assert code == 2
    assert "normula guard check" in err
    code, out, _ = cli("guard", "check", "plain.safetensors", "--model", "guarded_models:post")
    assert code == 0
    assert out.startswith("this cannot be told")
    assert "norm_first=True" in out
    words = ("guard", "save", "b.safetensors", "--model", "guarded_models:post", "--weights", "plain.safetensors")
    assert cli(*words).code == 0
    assert all(torch.equal(one, tensors[name]) for name, one in load_file("b.safetensors").items())
    assert cli("guard", "load", "b.safetensors", "--model", "guarded_models:post").code == 0


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["load", "none.safetensors", "--model", "guarded_models:post"], "there is no file none.safetensors"),
        (["load", "bad.safetensors", "--model", "guarded_models:post"], "cut short"),
        (["check", "bad.safetensors", "--model", "guarded_models:post"], "cut short"),
        (["show", "bad.safetensors"], "cut short"),
        (["show", "bad.bin"], "never are"),
        (["load", "a.safetensors"], "load needs a model"),
        (["show", "a.safetensors", "--allow"], "--allow would have no effect on show"),
        (
            ["check", "a.safetensors", "--model", "guarded_models:post", "--weights", "x"],
            "--weights would have no effect",
        ),
        (["destroy", "a.safetensors"], "invalid choice"),
        (["load", "nowhere", "--model", "guarded_models:bare"], "there is no file nowhere"),
        (["load", "empty", "--model", "guarded_models:bare"], "Name one of them, or another folder; pickles"),
        (["load", "evil", "--model", "guarded_models:bare"], "a shard is a .safetensors file beside its index"),
        (["load", "bad.bin", "--model", "guarded_models:bare"], "torch.load and weights_only=True"),
        (["load", "notes.txt", "--model", "guarded_models:bare"], "Name one, an index of shards, or a folder"),
        (["load", "zeros.safetensors", "--model", "guarded_models:bare"], "Fetch or save it again"),
        (["load", "plain.safetensors", "--model", "guarded_models:bare"], "carries no formula"),
        (["load", "a.safetensors", "--model", "guarded_models:failing"], "failed (RuntimeError: no luck)"),
        (["check", "plain.safetensors", "--model", "guarded_models:failing"], "failed (RuntimeError: no luck)"),
        (["save", "out.bin", "--model", "guarded_models:post"], "out.bin must end in .safetensors, or be a folder"),
        (["save", "notes.txt", "--model", "guarded_models:post"], "notes.txt must end in .safetensors"),
        (["save", "no/out.safetensors", "--model", "guarded_models:post"], "no folder no to write out.safetensors"),
        (
            ["save", "out.safetensors", "--model", "guarded_models:post", "--weights", "plain.safetensors"],
            "plain.safetensors does not fit",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], message: str, cli: Cli) -> None:
    cli("guard", "save", "a.safetensors", "--model", "guarded_models:post")
    for name in ("bad.safetensors", "bad.bin", "notes.txt"):
        Path(name).write_bytes(b"\x80\x04K\x01.")
    Path("zeros.safetensors").write_bytes(bytes(5000))
    save_file({"x": torch.ones(2)}, "plain.safetensors")
    for name in ("empty", "evil"):
        Path(name).mkdir()
    index = {"weight_map": {"x": "../plain.safetensors"}}
    Path("evil/model.safetensors.index.json").write_text(json.dumps(index))
    code, out, err = cli("guard", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
