"""The command line, called here or as a program of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from normula.cli import main

NORMULA = [sys.executable, "-m", "normula"]

TINY = [
    *("--layers", "2", "--width", "8", "--heads", "2", "--steps", "4", "--lr", "1e-3", "--warmup", "0"),
    *("--init", "xavier", "--seeds", "1", "--depths", "1", "2", "--flow-width", "8", "--flow-steps", "1"),
    *("--context", "8", "--workers", "2"),
]
"""Options of the smallest comparison."""


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command line in this process."""

    def run(*words: str) -> Result:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def program() -> Cli:
    """Run a command line as a program."""

    def run(*words: str, **options: Any) -> Result:
        done = subprocess.run([*NORMULA, *words], capture_output=True, text=True, timeout=120, **options)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text to train on."""
    path = tmp_path / "text.txt"
    path.write_text("she sells sea shells on the sea shore. " * 20)
    return path
