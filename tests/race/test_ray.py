"""The same runs on a Ray cluster of several machines, all of them here; one is lost in the middle."""

import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import normula as nm
from normula.race import Job, Store
from normula.race.pool import Died, Done, Engine, Pool, Raised, Said, Say
from normula.race.ray import RayEngine
from tests.processes import wait_until
from tests.race.inline import TINY, Inline, drive, memory, tiny, untimed

ray = pytest.importorskip("ray")

GRID: dict[str, Any] = {**TINY, "lr": (1e-3, 2e-3, 3e-3), "steps": 100}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three machines with a CPU each; the first is ours, and has none for runs."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    size = {"object_store_memory": 80 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **size})
    for _ in range(2):
        found.add_node(num_cpus=1, **size)
    ray.init(address=found.address, log_to_driver=False, logging_level=logging.ERROR)
    yield found
    ray.shutdown()
    found.shutdown()


def test_it_is_an_engine_as_the_pool_is(cluster: Any) -> None:
    with RayEngine() as engine:
        assert isinstance(engine, Engine)
        assert isinstance(Pool(1), Engine)
        assert engine.size == 3
        assert RayEngine(workers=2).size == 2


def test_a_job_speaks_returns_and_raises(cluster: Any) -> None:
    with RayEngine() as engine:
        engine.give("speaks", Job(speaks, (3,), talks=True))
        engine.give("raises", Job(raises))
        events: dict[str, list[Any]] = {"speaks": [], "raises": []}
        while not all(found and isinstance(found[-1], Done | Raised) for found in events.values()):
            for key, event in engine.wait():
                events[key].append(event)
        assert engine.wait(0.01) == []
    assert events["speaks"] == [Said(0), Said(1), Said(2), Done("done")]
    [raised] = events["raises"]
    assert str(raised.error) == "ValueError: it was the job"


@pytest.mark.negative
def test_a_process_that_ends_is_blamed_on_its_job(cluster: Any) -> None:
    with RayEngine() as engine:
        engine.give("dies", Job(os._exit, (7,)))
        [(key, event)] = engine.wait()
    assert key == "dies"
    assert isinstance(event, Died)
    assert not event.is_blameless


def test_a_machine_that_is_lost_costs_only_what_it_was_running(cluster: Any, tmp_path: Path) -> None:
    """Held against the same runs in this process."""
    path, lost = tmp_path / "RUN", []

    def lose(done: int, of: int, what: str) -> None:
        if done == 2:
            node = cluster.worker_nodes.copy().pop()
            cluster.remove_node(node, allow_graceful=False)
            with Store.open(path) as store:
                lost.append(store.finished())

    found = nm.race(**GRID, engine="ray", out=path, save_seconds=0.05, report=lose)

    [before] = lost
    assert len(before) == 2
    with Store.open(path) as store:
        assert {identity: store.finished()[identity] for identity in before} == before
        repeated = [what for _, _, what in store.events if what.startswith("made once more: its machine was lost")]
        assert len(repeated) <= 1
    whole = memory(tiny(**GRID))
    drive(whole, Inline())
    assert [untimed(trial) for trial in found.trials] == [untimed(trial) for trial in whole.trials]
    wait_until(partial(has_nodes, 2))


def has_nodes(count: int) -> bool:
    return sum(node["Alive"] for node in ray.nodes()) == count


def test_a_cluster_that_is_connected_to_already_is_used_and_left_as_it_is(cluster: Any) -> None:
    with RayEngine("192.0.2.1:9") as engine:
        assert engine.size == int(ray.cluster_resources()["CPU"])
    assert ray.is_initialized()


def speaks(upto: int, *, say: Say) -> str:
    for number in range(upto):
        say(number)
        time.sleep(0.01)
    return "done"


def raises() -> None:
    raise ValueError("it was the job")
