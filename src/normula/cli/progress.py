"""A progress bar on stderr, where the results are not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, str], None]

LINE_SECONDS = 60.0
"""Between two lines where stderr is no terminal, as in the log of a batch job."""


@contextmanager
def progress(title: str, *, tells_time: bool = False) -> Iterator[Report]:
    """A function of (done, in all, what was done last).

    Where stderr is no terminal it shows nothing; or, of work that takes long, a line a minute.

    Args:
        title: of the bar.
        tells_time: whether the work takes long, and what was done last says how long the rest takes.
    """
    if not sys.stderr.isatty():
        yield _lines(title) if tells_time else lambda done, of, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [] if tells_time else [TimeRemainingColumn()]
    with Progress(*columns, TextColumn("{task.fields[what]}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, what="starting")
        yield lambda done, of, what: bar.update(task, completed=done, total=of, what=what)


def _lines(title: str) -> Report:
    last = time.monotonic()

    def line(done: int, of: int, what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print(f"{title}: {done} of {of}; {what}", file=sys.stderr, flush=True)

    return line
