"""Jobs on many machines: the engine that gives them to a Ray cluster as tasks.

What a job says goes to a small actor on the machine of the race, so that it is there when the job's own machine has
gone. Ray repeats nothing by itself: who gave the job decides, and gives it with the last state that was said.
"""

from __future__ import annotations

import asyncio
import logging
import os
from types import TracebackType
from typing import Any, Self

from normula.race.pool import Died, Done, Event, Job, Raised, Said

MISSING = "ray is not installed; install it with: pip install 'normula[ray]'"


class RayEngine:
    """A Ray cluster; see `Engine`.

    Args:
        address: of the cluster: `auto` for the one that this machine is part of, or `HOST:PORT`; None for one of this
            machine alone, for as long as the race takes.
        workers: jobs at once; None for one on each CPU, also of machines that join later.
        gpus: share of a GPU that a job needs.

    Raises:
        ImportError: Ray is not installed.
        ValueError: there is no such cluster.
    """

    def __init__(self, address: str | None = None, workers: int | None = None, gpus: float = 0.0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
        try:
            import ray
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        except ModuleNotFoundError:
            raise ImportError(MISSING) from None
        self._ray: Any = ray
        self._workers, self._gpus = workers, gpus
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            self._connect(address)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox = self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = self._ray.remote(_task).options(num_cpus=1, num_gpus=gpus, max_retries=0)
        self._letters = self._mailbox.take.remote()
        self._running: dict[Any, str] = {}

    @property
    def size(self) -> int:
        """Jobs at once."""
        resources = self._ray.cluster_resources()
        places = int(resources.get("CPU", 1))
        if self._gpus:
            places = min(places, int(resources.get("GPU", 0) / self._gpus))
        return max(1, places if self._workers is None else min(places, self._workers))

    def give(self, key: str, job: Job) -> None:
        """Start a job."""
        self._running[self._task.remote(key, job, self._mailbox)] = key

    def wait(self, seconds: float | None = None) -> list[tuple[str, Event]]:
        """What has happened, in the order in which the jobs were given; empty when the time is over."""
        ready, _ = self._ray.wait([self._letters, *self._running], num_returns=1, timeout=seconds)
        ready += [ref for ref in self._ray.wait([*self._running], num_returns=1, timeout=0)[0] if ref not in ready]
        events: list[tuple[str, Event]] = []
        if self._letters in ready:
            here = set(self._running.values())
            events += [(key, Said(message)) for key, message in self._ray.get(self._letters) if key in here]
            self._letters = self._mailbox.take.remote()
        for ref, key in list(self._running.items()):
            if ref in ready:
                events.append((key, self._ended(ref)))
                del self._running[ref]
        return events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._ray.kill(self._mailbox)
        self._running.clear()
        if self._is_ours:
            self._ray.shutdown()

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            options |= {"address": "local", "num_cpus": self._workers, "include_dashboard": False}
        else:
            options["address"] = address
        try:
            self._ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())[:300]
            raise ValueError(
                f"there is no Ray cluster at {address} ({said}); start one with `ray start --head`, or leave out "
                "--address for one of this machine alone"
            ) from None

    def _ended(self, ref: Any) -> Event:
        """What has come of a task."""
        failures = self._ray.exceptions
        try:
            event: Event = self._ray.get(ref)
        except (failures.NodeDiedError, failures.ObjectLostError, failures.TaskUnschedulableError) as error:
            return Died(f"its machine was lost ({_first_line(error)})", is_blameless=True)
        except failures.OutOfMemoryError:
            return Died("Ray ended it, as its machine's memory was almost full")
        except failures.RayError as error:
            return Died(f"a process ended while it worked ({_first_line(error)})")
        return event


class Mailbox:
    """Keeps what jobs say until it is taken; an actor."""

    def __init__(self) -> None:
        self._letters: list[tuple[str, Any]] = []
        self._has_come = asyncio.Event()

    async def put(self, key: str, message: Any) -> None:
        """Keep a message."""
        self._letters.append((key, message))
        self._has_come.set()

    async def take(self) -> list[tuple[str, Any]]:
        """All messages, as soon as there are any."""
        await self._has_come.wait()
        letters, self._letters = self._letters, []
        self._has_come.clear()
        return letters


def _task(key: str, job: Job, mailbox: Any) -> Event:
    import ray

    try:
        return Done(job.run(lambda message: ray.get(mailbox.put.remote(key, message))))
    except Exception as error:
        return Raised(RuntimeError(f"{type(error).__name__}: {error}"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
