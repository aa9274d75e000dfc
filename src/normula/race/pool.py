"""Jobs spread over the cores: processes with one thread each.

Small models run fastest so: the threads of one process spend their time waiting for each other.

The standard library's pools are not used: they share one pipe among all processes, and wait for ever where a
process is ended in the middle of a message, as an interrupt does.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

SELDOM = 100_000
"""Objects more than before at which a process looks for those that nothing reaches: a framework loads a million."""

Say = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Job:
    """A function of a module's top level, and what it is called with.

    Attributes:
        talks: whether it is given `say=`, a function that sends something to who gave the job.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    talks: bool = False

    def run(self, say: Say) -> Any:
        """What the function returns."""
        return self.function(*self.arguments, **({"say": say} if self.talks else {}))


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a job sent while it worked."""

    message: Any


@dataclass(frozen=True, slots=True)
class Done:
    """What a job returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """What a job raised."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended while it worked.

    Attributes:
        reason: how.
        is_blameless: whether it is known that the job was not the cause, as where a whole machine has gone.
    """

    reason: str
    is_blameless: bool = False


Event = Said | Done | Raised | Died


@runtime_checkable
class Engine(Protocol):
    """Where jobs run, several at once, each under a key of the caller's.

    Attributes:
        size: how many run at once.
    """

    @property
    def size(self) -> int: ...

    def give(self, key: str, job: Job) -> None:
        """Start a job; at most `size` are under way."""
        ...

    def wait(self, seconds: float | None = None) -> list[tuple[str, Event]]:
        """What has happened, in the order in which the jobs were given; empty when the time is over."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None:
        """End what still runs, at once."""
        ...


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
    with Pool(min(workers, len(jobs))) as pool:
        for place, job in todo:
            pool.give(str(place), job)
            if pool.is_full:
                break
        while pool.busy:
            for key, event in pool.wait():
                result = _result(event)
                for place, job in todo:
                    pool.give(str(place), job)
                    break
                yield int(key), result


def _result(event: Event) -> Any:
    match event:
        case Done():
            return event.result
        case Raised():
            raise event.error
        case Died():
            raise ChildProcessError(
                f"{event.reason}; the memory may not be enough for so many at once: try fewer workers"
            )
    raise AssertionError(event)


@dataclass(slots=True)
class _Member:
    """A process, and the connection to it."""

    place: int
    process: BaseProcess
    connection: Connection
    is_ready: bool = False


@dataclass(slots=True)
class Pool:
    """Processes of this machine with one thread each, started as they are needed; see `Engine`.

    Args:
        size: processes at most.
        variables: of the environment, for each process by its place, on top of what this one has.
    """

    size: int
    variables: Callable[[int], Mapping[str, str]] = lambda place: {}
    busy: dict[str, _Member] = field(default_factory=dict)
    idle: list[_Member] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether as many jobs are under way as there are to be processes."""
        return len(self.busy) >= self.size

    def give(self, key: str, job: Job) -> None:
        """Start a job.

        Raises:
            ChildProcessError: no process can be started.
        """
        assert not self.is_full
        assert key not in self.busy
        while self.idle:
            if self._sent(member := self.idle.pop(), job):
                self.busy[key] = member
                return
        member = self._started()
        self.busy[key] = member  # where this cannot be sent, `wait` will find out why
        self._sent(member, job)

    def wait(self, seconds: float | None = None) -> list[tuple[str, Event]]:
        """What has happened, in the order in which the jobs were given; empty when the time is over.

        Raises:
            ChildProcessError: a process ended as it started.
        """
        while True:
            ready = set(wait([member.connection for member in self.busy.values()], seconds))
            found = [(key, member) for key, member in self.busy.items() if member.connection in ready]
            events = [(key, event) for key, member in found if (event := self._event(member)) is not None]
            for key, event in events:
                if isinstance(event, Done | Raised):
                    self.idle.append(self.busy.pop(key))
                elif isinstance(event, Died):
                    self.busy.pop(key)
            if events or not ready:
                return events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self.busy.values():
            member.process.terminate()
        for member in (*self.busy.values(), *self.idle):
            member.connection.close()  # which tells a process that there is no more to do
            member.process.join()
        self.busy.clear()
        self.idle.clear()

    def _started(self) -> _Member:
        taken = {member.place for member in self.busy.values()}
        place = min(set(range(self.size)) - taken)
        with _environment({**dict.fromkeys(THREAD_VARIABLES, "1"), **self.variables(place)}), _no_interrupt():
            return _started(place)

    def _sent(self, member: _Member, job: Job) -> bool:
        try:
            member.connection.send(job)
        except OSError:  # it has ended while it waited
            return False
        return True

    def _event(self, member: _Member) -> Event | None:
        """The next message; None where it is that the process has started."""
        try:
            event: Event | None = member.connection.recv()
        except (EOFError, OSError):
            member.connection.close()
            member.process.join()
            code = member.process.exitcode or 0
            if code > 0 and not member.is_ready:
                raise ChildProcessError(
                    f"a process could not be started, it ended with code {code}; in a script of your own the call "
                    'must stand under `if __name__ == "__main__":`, as each process reads the script again'
                ) from None
            return Died(_ended(code))
        member.is_ready = True
        return event


def _ended(code: int) -> str:
    with suppress(ValueError):
        name = signal.Signals(-code).name
        return f"a process ended while it worked, by the signal {name}"
    return f"a process ended while it worked, with code {code}"


def _started(place: int) -> _Member:
    """A process that waits for jobs, and the connection to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the connection
    return _Member(place, process, ours)


def _work(connection: Connection) -> None:
    """What a process does: one job after the other, until the connection ends."""
    gc.set_threshold(SELDOM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; only the first answers it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError):
        os.dup2(2, 1)  # what a job prints is not part of the results on stdout
    try:
        connection.send(None)
        while True:
            connection.send_bytes(_answer(connection.recv_bytes(), lambda message: connection.send(Said(message))))
    except (EOFError, OSError):
        os._exit(0)  # there is nothing to keep, and taking all that was loaded apart takes a second or more


def _answer(question: bytes, say: Say) -> bytes:
    """What comes of a job, on its way back."""
    try:
        job: Job = pickle.loads(question)
        return pickle.dumps(Done(job.run(say)))
    except Exception as error:
        error.add_note(f"in a process of its own:\n{traceback.format_exc()}")
        return pickle.dumps(Raised(_that_travels(error)))


def _that_travels(error: Exception) -> Exception:
    """The error, or where it cannot be sent, one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, by whatever means."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside have these variables; the environment is as before afterwards."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
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
