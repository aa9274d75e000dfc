"""Processes that tests start, watched from outside."""

import os
import select
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds; fails when it takes longer."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.02)


def session(leader: int) -> list[int]:
    """The processes of a session that run, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, its = (entry / "stat").read_text().rsplit(") ", 1)[1].split()[:4]
        except (OSError, ValueError):
            continue
        if int(its) == leader and state != "Z":
            found.append(int(entry.name))
    return found


def output_until(terminal: int, words: bytes, seconds: float) -> bytes:
    """What is written to the terminal up to these words."""
    seen, end = b"", time.monotonic() + seconds
    while words not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)
    return seen
