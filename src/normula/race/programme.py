"""Here lives Programme: which runs are still to be made, in which order, and how far each goes before it is judged."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace

from normula.race.halving import Question, Setting, cut, rungs
from normula.race.store import Store
from normula.race.trial import Entry
from normula.record import Trial


@dataclass(frozen=True, slots=True, order=True)
class Leg:
    """A part of a run that can be made now: early rungs come first, and at each the order of the grid.

    Attributes:
        rung: of halving, at which it ends; their number for the end of the run.
        place: in the grid.
        identity: of the run.
    """

    rung: int
    place: int
    identity: str


class Programme:
    """The runs of a race.

    Args:
        entries: of the grid, by identity, in its order.
        store: has what is made already, and keeps what comes.
        halving: whether there are rungs.

    Attributes:
        made: the runs that are over.
        fresh: those of them that ended since they were last taken from here.
    """

    def __init__(self, entries: Mapping[str, Entry], store: Store, *, halving: bool) -> None:
        self.entries, self.store = entries, store
        self.made = {identity: trial for identity, trial in store.finished().items() if identity in entries}
        self.fresh: list[Trial] = []
        self._rungs = rungs(next(iter(entries.values())).recipe.steps) if halving else ()
        self._places = {identity: place for place, identity in enumerate(entries)}
        self._groups: dict[Question, list[str]] = {}
        self._todo: list[Leg] = []
        self._parts, self._cuts = store.parts(), store.cuts()
        self._waiting: dict[str, int] = {}
        for identity, entry in entries.items():
            self._groups.setdefault(Question.of(entry), []).append(identity)
            if identity not in self.made:
                self._stand(identity)
        for rung in range(len(self._rungs)):
            for question in self._groups:
                self._decide(question, rung)

    @property
    def is_over(self) -> bool:
        return len(self.made) == len(self.entries)

    def next(self) -> Leg | None:
        """What is to be made now; None where nothing can be, before something else has come back."""
        return heapq.heappop(self._todo) if self._todo else None

    def until(self, leg: Leg) -> int | None:
        """Updates in all at which the part ends; None for the end of the run."""
        return self._rungs[leg.rung] if leg.rung < len(self._rungs) else None

    def put_back(self, leg: Leg) -> None:
        """It was not made."""
        heapq.heappush(self._todo, leg)

    def finish(self, identity: str, trial: Trial) -> None:
        """A run is over, whatever it came to."""
        self.store.finish(self.entries[identity], trial)
        self._end({identity: trial})
        for rung in range(len(self._rungs)):
            self._decide(Question.of(self.entries[identity]), rung)

    def arrive(self, leg: Leg, trial: Trial, state: bytes) -> None:
        """A run has come to a rung."""
        step = self._rungs[leg.rung]
        self.store.part(leg.identity, step, trial, state)
        self._parts[leg.identity, step] = trial
        self._waiting[leg.identity] = leg.rung
        self._decide(Question.of(self.entries[leg.identity]), leg.rung)

    def _stand(self, identity: str) -> None:
        """Put a run that is not over where it was."""
        reached = [rung for rung, step in enumerate(self._rungs) if (identity, step) in self._parts]
        if reached:
            self._waiting[identity] = reached[-1]
        else:
            self._push(identity, 0)

    def _push(self, identity: str, rung: int) -> None:
        heapq.heappush(self._todo, Leg(rung, self._places[identity], identity))

    def _decide(self, question: Question, rung: int) -> None:
        """Let the runs that wait at a rung go on, or end, as soon as that can be told."""
        here = [identity for identity in self._groups[question] if self._waiting.get(identity) == rung]
        notes = self._notes(question, rung) if here else None
        if notes is None:
            return
        step = self._rungs[rung]
        dropped = {}
        for identity in here:
            del self._waiting[identity]
            if note := notes[self._setting(identity)]:
                dropped[identity] = replace(self._parts[identity, step], outcome="dropped", note=note)
            else:
                self._push(identity, rung + 1)
        self.store.cut(str(question), step, notes, [(self.entries[one], trial) for one, trial in dropped.items()])
        self._cuts[str(question), step] = notes
        self._end(dropped)

    def _end(self, trials: Mapping[str, Trial]) -> None:
        self.made.update(trials)
        self.fresh.extend(trials.values())

    def _notes(self, question: Question, rung: int) -> dict[str, str] | None:
        """For each setting why it is dropped here, if it is; None before all its rivals have arrived."""
        step = self._rungs[rung]
        if (question_step := (str(question), step)) in self._cuts:
            return self._cuts[question_step]
        gone = {
            setting
            for before in self._rungs[:rung]
            for setting, note in self._cuts.get((str(question), before), {}).items()
            if note
        }
        runs: dict[Setting, list[Trial]] = {}
        for identity in self._groups[question]:
            if self._setting(identity) in gone:
                continue
            if identity not in self.made and self._waiting.get(identity) != rung:
                return None
            run = self._parts.get((identity, step)) or self.made[identity]
            runs.setdefault(Setting.of(self.entries[identity]), []).append(run)
        return {str(setting): note for setting, note in cut(runs, step).items()}

    def _setting(self, identity: str) -> str:
        return str(Setting.of(self.entries[identity]))
