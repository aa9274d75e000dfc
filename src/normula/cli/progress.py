"""A progress bar on stderr, where the results are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A function of (done, in all, what was done last); it shows nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[what]}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, what="starting")
        yield lambda done, of, what: bar.update(task, completed=done, total=of, what=what)
