"""An engine that runs its jobs in this process, and whose processes die when the test says so."""

import hashlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from normula.race import Store
from normula.race.drive import Drive
from normula.race.estimate import Estimate
from normula.race.grid import Grid
from normula.race.origin import Origin
from normula.race.pool import Died, Done, Event, Job, Raised, Said
from normula.race.programme import Programme
from normula.race.trial import Entry
from normula.record import Environment, Evaluation, Training, Trial, to_dict

TINY = dict(placements=("pre", "post"), depth=1, width=8, lr=(1e-3, 3e-3), task="copy", steps=8, batch=4)
"""The fields of a grid whose runs take a moment."""

SECONDS = 1.0
"""That a pretended update takes."""

TIMES = ("seconds", "tokens_per_second", "memory")


@dataclass
class Inline:
    """Jobs run as they are given.

    Attributes:
        dies: for each key the deaths still to come: after its job has run and said what it says.
        given: the keys, and the work, as they came.
    """

    size: int = 2
    dies: dict[str, list[Died]] = field(default_factory=dict)
    given: list[tuple[str, Job]] = field(default_factory=list)
    events: deque[tuple[str, Event]] = field(default_factory=deque)

    def give(self, key: str, job: Job) -> None:
        self.given.append((key, job))
        event: Event
        try:
            event = Done(job.run(lambda message: self.events.append((key, Said(message)))))
        except Exception as error:
            event = Raised(error)
        deaths = self.dies.get(key)
        self.events.append((key, deaths.pop(0) if deaths else event))

    def wait(self, seconds: float | None = None) -> list[tuple[str, Event]]:
        return [self.events.popleft()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.events.clear()


def tiny(**fields: Any) -> Grid:
    return Grid(**(TINY | fields))


def origin(**fields: Any) -> Origin:
    here = Environment(versions={"normula": "1", "torch": "2"}, python="3.11", machine="here", device="cpu")
    return Origin(**(dict(environment=here, code="c", data="d", factory="") | fields))


def memory(grid: Grid) -> Store:
    return Store.create(None, grid, origin(), {})


def drive(store: Store, engine: Inline, *, halving: bool = False, **limits: Any) -> dict[str, Trial]:
    """Make the runs of a store's grid; what was made."""
    entries = {entry.identity: entry for entry in store.grid.entries}
    programme = Programme(entries, store, halving=halving)
    times = Estimate(times={}, share=1.0, workers=1, steps=store.grid.steps)
    Drive(engine=engine, programme=programme, store=store, estimate=times, **limits).run()
    return programme.made


def untimed(trial: Trial) -> dict[str, Any]:
    """What of a run is the same each time."""
    found: dict[str, Any] = to_dict(trial)
    return {name: value for name, value in found.items() if name not in TIMES}


def pretended(
    entry: Entry,
    state: bytes | None = None,
    *,
    until: int | None = None,
    seconds: float = math.inf,
    save: Callable[[bytes], None] | None = None,
    save_seconds: float = 60.0,
) -> tuple[Trial, bytes | None]:
    """As `trial.advance`, but the losses are drawn from the identity, and no time is spent."""
    step = 0 if state is None else int(state)
    steps = entry.recipe.steps
    while step < min(steps, until or steps) and step * SECONDS < seconds:
        step += 1
        if save is not None and step * SECONDS >= save_seconds and step < steps:
            save(str(step).encode())
    curve = tuple(_loss(entry.identity, number) for number in range(step))
    last = Evaluation(step=step, loss=_loss(entry.identity, step), accuracy=0.5)
    trial = entry.trial(Training(curve=curve, evaluations=(last,), seconds=step * SECONDS, tokens=step))
    return trial, None if step == steps else str(step).encode()


def _loss(identity: str, step: int) -> float:
    digest = hashlib.sha256(f"{identity} {step}".encode()).digest()
    return 1.0 + digest[0] / 256
