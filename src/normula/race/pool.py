"""Jobs spread over the cores: processes with one thread each.

Small models run fastest so: the threads of one process spend their time waiting for each other.

The standard library's pools are not used: they share one pipe among all processes, and wait for ever where a
process is ended in the middle of a message, as an interrupt does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Job:
    """A function of a module's top level, and what it is called with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Any]]:
    """Run jobs in the order given, and yield (place, result) as each ends.

    Where the caller stops early (an interrupt, or closing the iterator) the processes are ended at once.

    Raises:
        Exception: whatever a job raised, with where it did as a note.
        ChildProcessError: a process ended while it worked.
    """
    todo = iter(enumerate(jobs))
    team: dict[Connection, BaseProcess] = {}
    busy: dict[Connection, int] = {}

    def give(connection: Connection) -> None:
        for place, job in todo:
            connection.send(job)
            busy[connection] = place
            return

    try:
        with _one_thread(), _no_interrupt():
            for _ in range(min(workers, len(jobs))):
                connection, process = _started()
                team[connection] = process
        for connection in team:
            give(connection)
        while busy:
            ready = wait(list(busy))
            for connection in [one for one in sorted(busy, key=busy.__getitem__) if one in ready]:
                result = _result(connection, team[connection])
                place = busy.pop(connection)
                give(connection)
                yield place, result
    except BaseException:
        for process in team.values():
            process.terminate()
        raise
    finally:
        for connection, process in team.items():
            connection.close()  # which tells a process that there is no more to do
            process.join()


def _started() -> tuple[Connection, BaseProcess]:
    """A process that waits for jobs, and the connection to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the connection
    return ours, process


def _work(connection: Connection) -> None:
    """What a process does: one job after the other, until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; only the first answers it
    try:
        while True:
            job = connection.recv()
            answer: tuple[Any, Exception | None]
            try:
                answer = (job.function(*job.arguments), None)
            except Exception as error:
                error.add_note(f"in a process of its own:\n{traceback.format_exc()}")
                answer = (None, error)
            connection.send(answer)
    except (EOFError, OSError):
        return


def _result(connection: Connection, process: BaseProcess) -> Any:
    try:
        result, error = connection.recv()
    except (EOFError, OSError):
        process.join()
        raise ChildProcessError(
            f"a process ended while it worked, with code {process.exitcode}; the memory may not be enough for "
            "so many at once: try fewer workers"
        ) from None
    if error is not None:
        raise error
    return result


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside take one thread each; the environment is as before afterwards."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Processes started inside never see an interrupt from the keyboard; this one sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
