"""What each command prints, for people and as JSON."""

import io
import json
from pathlib import Path

import pytest

from normula.catalog import entries
from normula.cli import compare_command
from normula.flow import flow
from normula.record import Comparison, Flow, from_json
from normula.spec import Spec
from tests.cli.conftest import TINY, Cli

STACK = ["--layers", "2", "--width", "8", "--heads", "2", "--seeds", "1"]


def test_list_names_every_placement_with_its_formula(cli: Cli) -> None:
    code, out, _ = cli("list")
    assert code == 0
    for entry, line in zip(entries(), out.splitlines(), strict=True):
        assert line.split()[0] == entry.name
        assert line.endswith(str(entry.placement.formula))


def test_list_as_json(cli: Cli) -> None:
    code, out, err = cli("list", "--json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["name"] for one in data] == [entry.name for entry in entries()]


@pytest.mark.parametrize("what", ["pre", "Post-LN", "norm(x + f(x))", "x = x + attn(norm(x)) + mlp(norm(x))"])
def test_explain_for_people_and_as_json(cli: Cli, what: str) -> None:
    code, out, err = cli("explain", what)
    assert (code, err) == (0, "")
    data = json.loads(cli("explain", what, "--json").out)
    assert data["formula"] in out
    assert f"dx'/dx = {data['skip']}" in " ".join(out.split())
    assert data["drawing"] in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_explain_writes_the_drawing(cli: Cli, tmp_path: Path) -> None:
    code, _, _ = cli("explain", "pre", "--svg", str(tmp_path / "pre.svg"))
    assert code == 0
    assert (tmp_path / "pre.svg").read_text().startswith("<svg")


def test_flow_for_people(cli: Cli) -> None:
    code, out, err = cli("flow", "post", *STACK)
    assert (code, err) == (0, "")
    assert "norm(x + f(x))" in out
    for column in ("layer", "step", "RMS", "branch/skip", "gradient", "skip alone", "token cosine"):
        assert column in out
    assert "VOID" not in out
    assert "Initialisation alone does not say" in out


@pytest.mark.negative
@pytest.mark.parametrize("layers", ["1", "3"])
def test_flow_says_that_a_blind_probe_is_void(cli: Cli, layers: str) -> None:
    code, out, _ = cli("flow", "post", *STACK, "--layers", layers, "--probe", "sum")
    assert code == 0
    assert "gradient (void)" in out
    assert out.count("VOID") == 1
    assert "null space" in " ".join(out.split())


def test_flow_over_training_steps(cli: Cli) -> None:
    code, out, _ = cli("flow", "pre", *STACK, "--steps", "2", "--lr", "1e-2", "--warmup", "1", "--task", "copy")
    assert code == 0
    for words in ("training step 0", "training step 2", "over training", "gradient at the input"):
        assert words in out
    assert "Initialisation alone" not in out


def test_flow_as_json_is_the_record(cli: Cli) -> None:
    code, out, err = cli("flow", "pre", *STACK, "--activation", "relu", "--final", "x", "--json")
    assert (code, err) == (0, "")
    spec = Spec(placement="pre", layers=2, width=8, heads=2, activation="relu", final="x")
    assert repr(from_json(Flow, out)) == repr(flow(spec, seeds=1))


def test_flow_warns_once_on_stderr_and_leaves_stdout_to_the_record(cli: Cli) -> None:
    code, out, err = cli("flow", "post", "--layers", "1", "--width", "2", "--heads", "1", "--json")
    assert code == 0
    assert json.loads(out)["findings"][0]["weight"] == "void"
    assert err.splitlines() == [
        "normula flow: warning: a norm over 2 features carries almost nothing: LayerNorm gives the bias for one "
        "feature and plus or minus the gain for two"
    ]


def test_compare_prints_the_summary_and_writes_the_page(cli: Cli, text: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = cli("compare", *TINY, "--data", str(text), "--html", str(page))
    assert code == 0
    assert err.strip() == f"page written to {page}"
    for words in ("Pre-LN", "Post-LN", "x + f(norm(x))", "norm(x + f(x))"):
        assert words in out
    html = page.read_text()
    assert html.lstrip().lower().startswith("<!doctype html")
    assert "<svg" in html
    assert "<script" not in html


def test_compare_as_json_makes_the_same_page_again(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, text: Path, tmp_path: Path
) -> None:
    page, again, record = (tmp_path / name for name in ("page.html", "again.html", "record.json"))
    code, out, _ = cli("compare", "pre", *TINY, "--data", str(text), "--html", str(page), "--json")
    assert code == 0
    assert [trial.name for trial in from_json(Comparison, out).trials] == ["pre"]
    record.write_text(out)

    for source in (str(record), "-"):
        monkeypatch.setattr("sys.stdin", io.StringIO(out))
        code, out_again, err = cli("report", source, "--html", str(again), "--json")
        assert (code, err.strip()) == (0, f"page written to {again}")
        assert json.loads(out_again) == json.loads(out)
        assert again.read_text() == page.read_text()
        again.unlink()


@pytest.mark.parametrize(
    ("words", "field", "values"),
    [
        (["--lr", "1e-3", "3e-3"], "lr", [1e-3, 3e-3]),
        (["--lr", "1e-3:1e-1:3"], "lr", [1e-3, 1e-2, 1e-1]),
        (["--lr", "1e-3:1e-2:2", "5e-2", "1e-3"], "lr", [1e-3, 1e-2, 5e-2]),
        (["--warmup", "0", "3", "3"], "warmup", [0, 3]),
        (["--init", "torch", "xavier"], "init", ["torch", "xavier"]),
        (["--depths", "3", "7"], "depths", [3, 7]),
        (["--norm", "rmsnorm"], "norm", "rmsnorm"),
        (["--flow-width", "16"], "flow_width", 16),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_options_of_compare_become_settings(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path, words: list[str], field: str, values: object
) -> None:
    class Seen(Exception):  # noqa: N818 - no error
        pass

    def see(placements: list[str], settings: object, **_: object) -> None:
        assert placements == ["peri", "x + f(x)"]
        value = getattr(settings, field)
        assert (list(value) if isinstance(value, tuple) else value) == (
            pytest.approx(values) if field == "lr" else values
        )
        raise Seen

    monkeypatch.setattr(compare_command, "compare", see)
    with pytest.raises(Seen):
        cli("compare", "peri", "x + f(x)", *words, "--html", str(tmp_path / "page.html"))
