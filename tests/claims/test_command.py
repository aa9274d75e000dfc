"""`normula claims`: what it prints, and its exit codes."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from normula.claims.claim import Claim, Measured
from normula.cli import main
from normula.record import ClaimVerdict, Figure


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim holds, and none was on record as holding."""
    verdict: ClaimVerdict = "holds"
    found = Measured(verdict=verdict, figures=(Figure(label="n", value=1.0),), text="So it is.")
    made = Claim(statement="A.", source="B", how="C.", recorded="does not hold here", measure=lambda: found)
    monkeypatch.setattr(import_module("normula.claims.ledger"), "claim", lambda name: made)


def test_a_verdict_as_recorded_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-feature-example"]) == 0
    out = capsys.readouterr().out
    assert "holds" in out
    assert "CHANGED" not in out


@pytest.mark.negative
@pytest.mark.usefixtures("changed")
def test_a_changed_verdict_exits_1_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-feature-example"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "CHANGED two-feature-example: on record is 'does not hold here', now 'holds'." in text


@pytest.mark.negative
@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_a_changed_verdict_exits_1_in_every_form(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-feature-example", form]) == 1
    assert "does not hold here" in capsys.readouterr().out


@pytest.mark.negative
def test_an_unknown_name_exits_2_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-features-example"]) == 2
    captured = capsys.readouterr()
    assert "did you mean 'two-feature-example'?" in captured.err
    assert not captured.out


def test_json_is_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-feature-example", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["verdict"]) == ("two-feature-example", "holds")


def test_the_chart_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chart.svg"
    assert main(["claims", "variance-not-exactly-one", "--svg", str(path)]) == 0
    assert path.read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.negative
def test_a_claim_without_a_chart_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chart.svg"
    assert main(["claims", "two-feature-example", "--svg", str(path)]) == 2
    assert "has no chart" in capsys.readouterr().err
    assert not path.exists()
