"""The making of a race: runs go to an engine, what comes back goes to the store, and what dies is made once more."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from normula.race.estimate import Estimate, duration
from normula.race.origin import maker
from normula.race.pool import Died, Done, Engine, Event, Raised, Said
from normula.race.programme import Leg, Programme
from normula.race.store import Store
from normula.race.trial import failure
from normula.race.work import SAVE_SECONDS, Broken, Made, Saved, Work, in_one_line
from normula.record import Trial

Report = Callable[[int, int, str], None]

MOST_DEATHS = 1
"""Of a process under a run, after which it is made once more; with the next it has failed."""

MOST_LOSSES = 20
"""Of a machine under a run, for which the run cannot be blamed."""


@dataclass(slots=True, kw_only=True)
class Drive:
    """A race under way.

    Args:
        engine: where runs are made.
        programme: which.
        store: where they are kept.
        estimate: of the time they take; it learns.
        deadline: of `time.monotonic`, at which runs stop where they are and no more begin.
        max_seconds: in updates that a run may take.
        save_seconds: between two saved states of a run.
        report: called with the runs made, the runs in all, and what was made last.
        finished: called with each run that is over.
    """

    engine: Engine
    programme: Programme
    store: Store
    estimate: Estimate
    deadline: float = math.inf
    max_seconds: float = math.inf
    save_seconds: float = SAVE_SECONDS
    report: Report = lambda done, of, what: None
    finished: Callable[[Trial], None] = lambda trial: None
    _legs: dict[str, Leg] = field(default_factory=dict, init=False)
    _begun: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _deaths: Counter[str] = field(default_factory=Counter, init=False)
    _losses: Counter[str] = field(default_factory=Counter, init=False)

    def run(self) -> None:
        """Make what is to be made, until it is, or the time is over."""
        while True:
            self._give()
            if not self._legs:
                return
            for identity, event in self.engine.wait():
                self._take(identity, event)
                self._tell()

    def _give(self) -> None:
        """Keep the engine busy."""
        while len(self._legs) < self.engine.size and time.monotonic() < self.deadline:
            leg = self.programme.next()
            if leg is None:
                return
            state, spent = self.store.state(leg.identity)
            self._legs[leg.identity] = leg
            self._begun[leg.identity] = (time.monotonic(), spent)
            work = Work(
                entry=self.programme.entries[leg.identity],
                identity=leg.identity,
                maker=maker(self.programme.entries[leg.identity].framework),
                state=state,
                until=self.programme.until(leg),
                seconds=min(self.max_seconds, spent + self.deadline - time.monotonic()),
                save_seconds=self.save_seconds,
            )
            self.engine.give(leg.identity, work.job)

    def _take(self, identity: str, event: Event) -> None:
        match event:
            case Said(Saved(state)):
                begun, spent = self._begun[identity]
                self.store.save(identity, state, spent + time.monotonic() - begun)
            case Done(Made() as made):
                self._made(self._legs.pop(identity), made)
            case Done(Broken(reason)):
                self._fail(identity, reason)
            case Raised(error):
                self._fail(identity, in_one_line(error))
            case Died():
                self._again(identity, event)
            case _:
                raise AssertionError(event)

    def _made(self, leg: Leg, made: Made) -> None:
        """A part of a run has been made: it is over, at a rung, too slow, or stopped by the deadline."""
        trial, state = made.trial, made.state
        until = self.programme.until(leg)
        if state is None:
            self.programme.finish(leg.identity, trial)
        elif until is not None and len(trial.curve) >= until:
            self.programme.arrive(leg, trial, state)
        elif trial.seconds >= self.max_seconds:
            note = f"stopped after {self.max_seconds:g} seconds, {len(trial.curve)} of {trial.steps} steps made"
            self.programme.finish(leg.identity, replace(trial, outcome="dropped", note=note))
        else:
            self.store.save(leg.identity, state, trial.seconds)

    def _again(self, identity: str, died: Died) -> None:
        """A process or a machine has gone under a run: it is made once more, from its last state."""
        counts, most = (self._losses, MOST_LOSSES) if died.is_blameless else (self._deaths, MOST_DEATHS)
        counts[identity] += 1
        if counts[identity] > most:
            self._fail(identity, f"{died.reason}, {counts[identity]} times; the memory may not be enough for it")
            return
        self.store.note(f"made once more: {died.reason}", identity)
        self.programme.put_back(self._legs.pop(identity))

    def _fail(self, identity: str, reason: str) -> None:
        self._legs.pop(identity)
        self.programme.finish(identity, failure(self.programme.entries[identity], reason))

    def _tell(self) -> None:
        """Pass on what is over."""
        entries, made = self.programme.entries, self.programme.made
        for trial in self.programme.fresh:
            self.finished(trial)
            self.estimate.took(entries[trial.identity], trial)
            left = self.estimate.all(entry for identity, entry in entries.items() if identity not in made)
            what = f"{trial.name}, depth {trial.layers}, rate {trial.lr:g}, warmup {trial.warmup}: {trial.outcome}"
            self.report(len(made), len(entries), f"{what}; about {duration(left)} left" if left else what)
        self.programme.fresh.clear()
