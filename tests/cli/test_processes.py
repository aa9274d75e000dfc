"""The program among others: pipes that close, disks that are full, an interrupt from the keyboard."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from normula.record import Comparison, from_json
from tests.cli.conftest import NORMULA, TINY, Cli
from tests.processes import output_until, session, wait_until


@pytest.mark.parametrize(
    "words", [["list"], ["--help"], ["compare", "--help"], ["explain", "pre"], ["list", "--json"]], ids=" ".join
)
def test_a_reader_that_has_gone_is_no_error(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*NORMULA, *words], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.negative
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_under_stdout_is_said_without_a_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*NORMULA, "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "normula: [Errno 28] No space left on device\n")


@pytest.mark.negative
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_under_the_page_is_found_before_the_work(program: Cli, text: Path) -> None:
    code, out, err = program("compare", *TINY, "--data", str(text), "--html", "/dev/full")
    assert (code, out) == (2, "")
    assert "no such space is left" in err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("to", ["the program", "all its processes"])
def test_an_interrupt_ends_cleanly_and_reports_what_was_finished(text: Path, tmp_path: Path, to: str) -> None:
    """As Ctrl-C in a terminal: there, all processes of the group get it."""
    page = tmp_path / "page.html"
    words = ["compare", *TINY, "--steps", "1000000", "--data", str(text), "--html", str(page), "--json"]
    terminal, stderr = pty.openpty()  # progress is shown on a terminal only
    process = subprocess.Popen([*NORMULA, *words], stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
    os.close(stderr)
    try:
        shown = output_until(terminal, b"at depth", seconds=100)
        assert b"at depth" in shown
        assert len(session(process.pid)) > 2  # the workers, at least
        os.kill(process.pid, signal.SIGINT) if to == "the program" else os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        rest = output_until(terminal, b"page written to", seconds=5)
    finally:
        process.kill()
        os.close(terminal)

    assert process.returncode == 130
    assert b"Traceback" not in shown + rest
    assert b"page written to" in rest
    found = from_json(Comparison, out.decode())
    assert found.depths
    assert len(found.trials) < found.planned
    assert found.verdict[0].text.startswith("Interrupted: ")
    assert "Interrupted: " in page.read_text()
    wait_until(lambda: not session(process.pid))


def test_an_interrupt_of_a_command_without_parts_says_so() -> None:
    process = subprocess.Popen(
        [*NORMULA, "flow", "pre", "--steps", "1000000", "--layers", "1", "--width", "8", "--heads", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "normula: interrupted\n")
    # Python ends itself by the signal where that came in the middle of an import; a shell shows 130 for both
    assert process.returncode in (130, -signal.SIGINT)


def test_json_on_stdout_and_nothing_else_with_a_terminal_for_progress() -> None:
    terminal, stderr = pty.openpty()
    words = ["flow", "pre", "--layers", "1", "--width", "8", "--heads", "2", "--json"]
    process = subprocess.Popen([*NORMULA, *words], stdout=subprocess.PIPE, stderr=stderr)
    os.close(stderr)
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 0
    assert json.loads(out)["name"] == "pre"
