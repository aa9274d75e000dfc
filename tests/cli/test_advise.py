"""The command `advise`."""

import json
from pathlib import Path

import pytest

from normula.record import Advice, from_json, to_json
from tests.cli.conftest import Cli
from tests.race.answers import raced
from tests.report.races import RACES


def test_it_says_what_to_take_and_why(cli: Cli) -> None:
    code, out, err = cli("advise", "--depth", "48", "--task", "language", "--tuning", "none", "--params", "7B")
    assert (code, err) == (0, "")
    assert out.index("Take\n".rstrip()) < out.index("peri  Peri-LN") < out.index("Or") < out.index("Leave")
    assert "Kim et al., Peri-LN, 2025" in " ".join(out.split())
    assert cli("advise", "--depth", "48", "--task", "language", "--tuning", "none", "--params", "7B").out == out


def test_claims_come_with_the_ledgers_verdict(cli: Cli) -> None:
    out = " ".join(cli("advise", "--pretrained", "--base", "post").out.split())
    assert "swapping the placement under a set of weights changes the function. On record: holds." in out


def test_a_base_alone_says_that_there_are_weights(cli: Cli) -> None:
    found = from_json(Advice, cli("advise", "--base", "peri", "--json").out)
    assert found.situation == {"pretrained": True, "base": "peri"}
    assert found.first.placement == "peri"


@pytest.mark.parametrize(("text", "value"), [("125M", 125e6), ("7B", 7e9), ("3e8", 3e8), ("1.3b", 1.3e9)])
def test_parameters_are_counted_as_people_write_them(cli: Cli, text: str, value: float) -> None:
    assert json.loads(cli("advise", "--params", text, "--json").out)["situation"] == {"params": value}


def test_a_race_of_ones_own_counts(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "race.json"
    path.write_text(to_json(raced(lambda entry: 1.0 if entry.name == "peri" else 2.0, "pre", "peri")))
    out = cli("advise", "--depth", "2", "--run", str(path)).out
    assert "It is first in your race." in " ".join(out.split())
    found = from_json(Advice, cli("advise", "--depth", "2", "--run", str(path), "--json").out)
    assert found.first.placement == "peri"
    assert found.first.evidence[-1].kind == "race"


def test_a_model_of_ones_own_is_read(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_to_advise.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = from_json(Advice, cli("advise", "--model", "mine_to_advise:make", "--input", "src=2x5x8", "--json").out)
    assert found.situation == {"depth": 3, "pretrained": True, "base": "post"}
    assert found.first.placement == "post"


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--depth", "0"], "a whole number of at least 1"),
        (["--params", "many"], "a number of parameters is such as 125M"),
        (["--from-scratch", "--base", "post"], "go with --pretrained"),
        (["--from-scratch", "--pretrained"], "not allowed with"),
        (["--base", "posst"], "no placement is called 'posst'"),
        (["--run", "nowhere.db"], "nowhere.db cannot be read"),
        (["--input", "x=2x5x8"], "no model is given"),
        (["--task", "speech"], "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, words: list[str], message: str) -> None:
    code, out, err = cli("advise", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.negative
def test_a_race_without_runs_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "race.json"
    path.write_text(to_json(RACES["nothing"]))
    assert "no run that counts" in cli("advise", "--run", str(path)).err
