"""Jobs spread over the cores: processes with one thread each.

Small models run fastest so: the threads of one process spend their time waiting for each other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
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
        Exception: whatever a job raised.
    """
    others = multiprocessing.active_children()
    with _one_thread():
        executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_quiet)
        try:
            with _no_interrupt():
                pending: dict[Future[Any], int] = {
                    executor.submit(job.function, *job.arguments): place for place, job in enumerate(jobs)
                }
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=pending.__getitem__):
                    yield pending.pop(future), future.result()
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            executor.shutdown(cancel_futures=True)
            raise
        executor.shutdown()


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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _quiet() -> None:
    """An interrupt from the keyboard goes to all processes; only the first answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
