"""`normula race`: what is asked for is what is run; an interrupt keeps what is there."""

import json
import os
import pty
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from normula.cli import race_command
from normula.race import Store, StoreError, answer, outlook
from normula.race.estimate import duration
from normula.race.race import INTERRUPTED
from normula.record import Race, from_json
from tests.cli.conftest import NORMULA, Cli
from tests.processes import output_until, session, wait_until
from tests.race.inline import Inline, drive, memory, origin, tiny

SMALL = ["--depth", "1", "--width", "8", "--batch", "4", "--task", "copy", "--steps", "8"]
"""Options of the smallest race, whose runs are those of `tiny`."""


def raced(note: str = "", **fields: Any) -> Race:
    store = memory(tiny(**fields))
    drive(store, Inline())
    return answer(store.grid, store.trials, environment=origin().environment, digest="", seconds=1.0, note=note)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks the library for."""
    found: dict[str, Any] = {}

    def race(**arguments: Any) -> Race:
        found.update(arguments)
        return raced(note=found.get("note", ""))

    monkeypatch.setattr(race_command, "race", race)
    return found


def test_every_option_reaches_the_race(cli: Cli, asked: dict[str, Any], tmp_path: Path) -> None:
    words = (
        *(
            "race",
            "pre",
            "norm(x + f(x)), final=norm(x)",
            "--depth",
            "6",
            "12",
            "--width",
            "32,64",
            "--lr",
            "1e-3:1e-2:3",
        ),
        *(
            "--warmup",
            "0,10",
            "--batch",
            "4",
            "8",
            "--optimiser",
            "adamw,sgd",
            "--norm",
            "rmsnorm",
            "--init",
            "default,own",
        ),
        *("--seeds", "2", "--steps", "50", "--task", "copy", "--context", "9", "--shape", "cosine", "--beta2", "0.95"),
        *("--weight-decay", "0.1", "--clip", "1", "--dtype", "bfloat16", "--heads", "4", "--hidden", "48"),
        *("--activation", "gelu", "--no-bias", "--dropout", "0.1", "--framework", "torch", "--device", "cpu"),
        *("--workers", "3", "--engine", "ray", "--address", "auto", "--minutes", "2.5", "--max-seconds", "9"),
        *("--halving", "--out", str(tmp_path / "RUN"), "--log", "tensorboard:F", "--json"),
    )
    code, out, _ = cli(*words)
    assert code == 0
    from_json(Race, out)
    for name in ("report", "say"):
        assert callable(asked.pop(name))
    assert asked == dict(
        placements=["pre", "norm(x + f(x)), final=norm(x)"],
        depth=(6, 12),
        width=(32, 64),
        lr=(1e-3, 3.16e-3, 1e-2),
        warmup=(0, 10),
        batch=(4, 8),
        optimiser=("adamw", "sgd"),
        norm=("rmsnorm",),
        init=("torch", "own"),
        seeds=2,
        steps=50,
        task="copy",
        context=9,
        shape="cosine",
        beta2=0.95,
        weight_decay=0.1,
        clip=1.0,
        dtype="bfloat16",
        heads=4,
        hidden=48,
        activation="gelu",
        bias=False,
        dropout=0.1,
        framework="torch",
        device="cpu",
        workers=3,
        engine="ray",
        address="auto",
        minutes=2.5,
        max_seconds=9.0,
        halving=True,
        out=str(tmp_path / "RUN"),
        log=["tensorboard:F"],
        sure=True,
    )


def test_what_is_not_asked_for_is_left_to_the_library(cli: Cli, asked: dict[str, Any], tmp_path: Path) -> None:
    assert cli("race", "--placement", "pre,post", "--lanes", "peri", "--out", str(tmp_path / "RUN")).code == 0
    assert {*asked} == {"placements", "out", "sure", "log", "report", "say"}
    assert asked["placements"] == ["pre", "post", "peri"]


def test_contestants_with_settings_are_told_from_several() -> None:
    assert race_command.lanes("pre,post") == ["pre", "post"]
    assert race_command.lanes("pre, post, final=norm(x), init=normal,peri") == [
        "pre",
        "post, final=norm(x), init=normal",
        "peri",
    ]
    assert race_command.lanes("x + attn(norm(x), qk=norm), lr=1e-3") == ["x + attn(norm(x), qk=norm), lr=1e-3"]


def test_a_race_without_a_file_is_given_one(
    cli: Cli, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "4 of 4 runs are kept in race.db; for its page: normula report race.db" in cli("race", "pre").err
    Path("race.db").touch()
    Path("race-2.db").touch()
    cli("race", "pre")
    assert asked["out"] == "race-3.db"


def test_the_end_says_how_to_go_on(cli: Cli, asked: dict[str, Any], tmp_path: Path) -> None:
    words = ("race", "pre", "post", "--out", str(tmp_path / "a run"))
    asked["note"] = "stopped after 2 minutes"
    code, _, err = cli(*words)
    assert code == 0
    assert f"stopped after 2 minutes: 4 of 4 runs are kept in {tmp_path}/a run; go on with: " in err
    assert f"normula race --resume '{tmp_path}/a run'" in err
    asked["note"] = INTERRUPTED
    assert cli(*words).code == 130


@pytest.mark.negative
def test_a_race_of_which_no_run_could_be_made_says_why(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(race_command, "race", lambda **_: raced(placements="post", model="tests.race.factories:picky"))
    code, _, err = cli("race", "post", "--out", str(tmp_path / "RUN"))
    assert code == 2
    assert "no run could be made; the first: RuntimeError: no norm(x + f(x)) here" in err


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["race"], "a race needs placements, such as: normula race pre post"),
        (
            ["race", "--resume", "RUN", "--depth", "3", "--no-bias", "--halving"],
            "leave out --depth, --no-bias, --halving",
        ),
        (["race", "pre", "--resume", "RUN"], "leave out the placements"),
        (["race", "pre", "--lr", "0"], "a rate is a positive number"),
        (["race", "pre", "--depth", "0"], "a whole number of at least 1"),
        (["race", "pre", "--depth", "6,x"], "a whole number of at least 1"),
        (["race", "pre", "--minutes", "nan"], "a positive number stands here, not 'nan'"),
        (["race", "pre", "pre, final=x, final=x"], "after a placement come settings"),
        (["race", "pre", "--heads", "5"], "width must be divisible by heads"),
        (["race", "pre", "--norm", "layernrom"], "did you mean 'layernorm'"),
        (["race", "pre", "--optimiser", "adm"], "optimiser is one of adam, adamw, sgd"),
        (["race", "pre", "--init", "xaver"], "did you mean 'xavier'"),
        (["race", "pre", "--dropout", "2"], "dropout"),
        (["race", "pre", "--task", "cpoy"], "did you mean 'copy'"),
        (["race", "--resume", "RUN"], "there is no race RUN"),
        (["race", "pre", "--out", "no/RUN"], "there is no folder no; make it first"),
        (["race", "pre", "--out", "."], "is a folder"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_bad_usage_is_said_in_a_line(
    cli: Cli, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.negative
def test_a_grid_of_a_million_runs_asks_first(cli: Cli, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("race", "pre", "--lr", "1e-3,1e-2", "--seeds", "500000", "--out", "RUN")
    code, _, err = cli(*words)
    assert (code, asked) == (2, {})
    assert "this grid has 1000000 runs; with --yes they are made, or cut the grid" in err
    assert cli(*words, "--yes").code == 0
    assert asked["sure"]

    asked.clear()
    for answered, code in (("y\n", 0), ("\n", 2), ("", 2)):
        monkeypatch.setattr("sys.stdin", Terminal(answered))
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        done = cli(*words)
        assert done.code == code
    assert asked["sure"]


class Terminal:
    def __init__(self, line: str) -> None:
        self.line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.line


def test_a_dry_run_says_what_would_be_run_and_makes_nothing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(race_command.Limits, "opened", lambda limits, grid: Inline())
    words = ("race", "pre", "post", *SMALL, "--lr", "1e-3,3e-3", "--dry-run")
    code, out, err = cli(*words)
    assert (code, err) == (0, "")
    assert "contestants: pre; post\ndepth: 1\nwidth: 8\nlr: 0.001, 0.003\n" in out
    assert out.splitlines()[-1].startswith("4 runs, 4 to make: about ")
    found = json.loads(cli(*words, "--json").out)
    assert (found["runs"], found["left"], found["grid"]) == (4, 4, json.loads(json.dumps(tiny().to_dict())))
    assert list(tmp_path.iterdir()) == []
    assert duration(outlook(tiny(), race_command.Limits()).seconds).endswith("s")


def held(path: Path) -> int:
    try:
        with Store.open(path) as store:
            return len(store.finished())
    except StoreError:
        return 0


def has_some(path: Path) -> bool:
    return held(path) > 0


def has_ended(leader: int) -> bool:
    return not session(leader)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_an_interrupt_keeps_all_and_says_how_to_go_on(tmp_path: Path, program: Cli) -> None:
    """As Ctrl-C in a terminal: all processes of the group get it; a second one comes at once."""
    path = tmp_path / "RUN"
    words = [*NORMULA, "race", "pre", "post", *SMALL, "--seeds", "500", "--out", str(path), "--json"]
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
    os.close(stderr)
    try:
        told = output_until(terminal, b" left", seconds=200)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=100)
        told += output_until(terminal, b"--resume", seconds=5)
    finally:
        process.kill()
        os.close(terminal)
    wait_until(partial(has_ended, process.pid))
    assert process.returncode == 130
    assert b"Traceback" not in told
    found = from_json(Race, out.decode())
    assert 0 < len(found.trials) == held(path) < found.planned == 1000
    assert found.note == INTERRUPTED
    assert b"go on with: normula race --resume" in told
    code, out_again, err = program("race", "--resume", str(path), "--trials", "1", "--json")
    assert (code, from_json(Race, out_again).trials) == (0, found.trials)
    assert "Traceback" not in err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_second_interrupt_ends_at_once_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "RUN"
    words = [*NORMULA, "race", "pre", "post", *SMALL, "--seeds", "500", "--out", str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_until(partial(has_some, path), seconds=100)
        for _ in range(3):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
    wait_until(partial(has_ended, process.pid))
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in err
    with Store.resume(path) as store:
        assert len(store.finished()) > 0
