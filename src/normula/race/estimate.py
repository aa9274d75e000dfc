"""How long a race will take: a few timed updates of each size of model, before it begins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeAlias

from normula.race.halving import Question, Setting, rungs
from normula.race.pool import Done, Engine, Job
from normula.race.trial import Entry
from normula.race.work import Pace, timed
from normula.record import Trial

Size: TypeAlias = tuple[int, int, int]
"""Depth, width and batch: what the time of an update depends on most."""

Kind: TypeAlias = str
"""What all runs have in common that one process compiles or loads only once."""

MOST_TIMED = 9
"""Sizes that are timed; others are judged by the nearest of them."""


@dataclass(slots=True)
class Estimate:
    """Seconds that runs take in one process.

    Args:
        times: of each size that was timed.
        share: of their updates that the runs will make, on average; less than 1 with halving.
        workers: processes side by side.
        steps: updates of a run.
    """

    times: Mapping[Size, Pace]
    share: float
    workers: int
    steps: int
    expected: float = field(default=0.0, init=False)
    taken: float = field(default=0.0, init=False)
    _known: dict[Size, Pace] = field(default_factory=dict, init=False)
    _begun: set[Kind] = field(default_factory=set, init=False)
    _kinds: dict[int, tuple[Entry, Kind]] = field(default_factory=dict, init=False)

    def of(self, entry: Entry) -> float:
        """Seconds of one run, not the first of its kind; nan where nothing could be timed."""
        pace = self._pace(entry)
        return pace.around + pace.step * self.steps * self.share

    def all(self, entries: Iterable[Entry]) -> float:
        """Seconds until these runs are made, side by side, at the pace of those that have been."""
        left = list(entries)
        pace = self.taken / self.expected if self.expected > 0 else 1.0
        return sum(self.of(entry) for entry in left) / self.workers * pace + self._begins(left)

    def took(self, entry: Entry, trial: Trial) -> None:
        """What a run has taken, to learn from."""
        self.expected += self._pace(entry).step * len(trial.curve)
        self.taken += trial.seconds
        self._begun.add(self._kind(entry))

    def _begins(self, entries: Sequence[Entry]) -> float:
        """Seconds for the first run of each kind, in every process that makes such runs."""
        first = [entry for entry in entries if self._kind(entry) not in self._begun]
        counts = Counter(self._kind(entry) for entry in first)
        examples = {self._kind(entry): entry for entry in first}
        return sum(
            self._pace(examples[kind]).once * min(count, self.workers) / self.workers for kind, count in counts.items()
        )

    def _kind(self, entry: Entry) -> Kind:
        """That of an entry, worked out once: this is asked of all that are left, each time that a run has ended."""
        if id(entry) not in self._kinds:
            self._kinds[id(entry)] = entry, kind_of(entry)  # the entry is held, so that its id stays its own
        return self._kinds[id(entry)][1]

    def _pace(self, entry: Entry) -> Pace:
        size = size_of(entry)
        if size not in self._known:
            self._known[size] = self._found(size)
        return self._known[size]

    def _found(self, size: Size) -> Pace:
        if not self.times:
            return Pace(math.nan, math.nan, math.nan)
        near = min(self.times, key=lambda other: abs(math.log(math.prod(other) / math.prod(size))))
        pace = self.times[near]
        return replace(pace, step=pace.step * math.prod(size) / math.prod(near))


def estimate(engine: Engine, entries: Sequence[Entry], *, halving: bool) -> Estimate:
    """Time a few updates of each size, with all processes at work; one that cannot be run is left out."""
    workers = min(engine.size, len(entries))
    timings = _timed(entries)
    jobs = [timings[place % len(timings)] for place in range(max(workers, len(timings)))]  # warms up all processes
    running: dict[str, Size] = {}
    found: dict[Size, list[Pace]] = {}
    todo = list(enumerate(jobs))
    while todo or running:
        while todo and len(running) < workers:
            place, (size, entry) = todo.pop()
            running[str(place)] = size
            engine.give(str(place), Job(timed, (entry,)))
        for key, event in engine.wait():
            size = running.pop(key)
            if isinstance(event, Done):
                found.setdefault(size, []).append(event.result)
    return Estimate(
        times={size: _mean(paces) for size, paces in found.items()},
        share=_share(entries) if halving else 1.0,
        workers=workers,
        steps=entries[0].recipe.steps,
    )


def _mean(paces: Sequence[Pace]) -> Pace:
    return Pace(*(fmean(getattr(one, name) for one in paces) for name in ("once", "around", "step")))


def size_of(entry: Entry) -> Size:
    """That of an entry."""
    return entry.spec.layers, entry.spec.width, entry.recipe.batch


def kind_of(entry: Entry) -> Kind:
    """That of an entry."""
    spec, recipe = replace(entry.spec, seed=0, init="normal"), replace(entry.recipe, seed=0, lr=1.0, warmup=0)
    return f"{spec} {recipe}"


def duration(seconds: float) -> str:
    """In words, as far as an estimate goes.

    >>> duration(8), duration(100), duration(4000), duration(200_000)
    ('8 s', '2 min', '1 h 7 min', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _timed(entries: Sequence[Entry]) -> list[tuple[Size, Entry]]:
    """A run of each size, the smallest first; some of them spread over the sizes where there are many."""
    sizes = sorted({size_of(entry): entry for entry in entries}.items(), key=lambda one: math.prod(one[0]))
    if len(sizes) <= MOST_TIMED:
        return sizes
    return [sizes[round(n * (len(sizes) - 1) / (MOST_TIMED - 1))] for n in range(MOST_TIMED)]


def _share(entries: Sequence[Entry]) -> float:
    """Of all updates, those that are made where each rung keeps the better half of a contestant's settings."""
    groups: dict[Question, set[Setting]] = {}
    for entry in entries:
        groups.setdefault(Question.of(entry), set()).add(Setting.of(entry))
    steps = entries[0].recipe.steps
    made = whole = 0
    for settings in groups.values():
        left, before = len(settings), 0
        whole += left * steps
        for step in (*rungs(steps), steps):
            made += left * (step - before)
            left, before = math.ceil(left / 2), step
    return made / whole
