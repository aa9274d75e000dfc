"""Here lives Work: a part of a run, as it is given to a process or a machine; and what comes of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from normula.framework import room
from normula.race.origin import maker
from normula.race.pool import Job, Say
from normula.race.trial import Entry, advance
from normula.record import Trial

SAVE_SECONDS = 60.0
"""Between two saved states of a run: what a kill costs at most."""

TIMED_STEPS = 6
"""Updates whose time is taken for an estimate, after as many as warm it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A part of a run.

    Args:
        entry: the run.
        identity: the entry's; a machine whose data are others comes to another.
        maker: what computes it, see `origin.maker`; empty where that does not matter.
        state: to go on from; None for the start.
        until: updates in all after which to stop; None for the end.
        seconds: in updates, in all, after which to stop.
        save_seconds: between two saved states.
    """

    entry: Entry
    identity: str
    maker: str = ""
    state: bytes | None = None
    until: int | None = None
    seconds: float = math.inf
    save_seconds: float = SAVE_SECONDS

    @property
    def job(self) -> Job:
        """To be given to an engine."""
        return Job(_made, (self,), talks=True)


@dataclass(frozen=True, slots=True)
class Saved:
    """A state to go on from, on the way."""

    state: bytes


@dataclass(frozen=True, slots=True)
class Made:
    """The trial as far as it is made.

    Attributes:
        state: to go on from; None where it is over.
        seconds: that it took here, all included.
    """

    trial: Trial
    state: bytes | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Broken:
    """The run cannot be made.

    Attributes:
        reason: in one line.
    """

    reason: str


def _made(work: Work, *, say: Say) -> Made | Broken:
    begun = time.perf_counter()
    if work.maker and work.maker != (here := maker(work.entry.framework)):
        return Broken(
            f"the versions where it ran are not those of where the race was started: {here}, not {work.maker}"
        )
    try:
        trial, state = advance(
            work.entry,
            work.state,
            until=work.until,
            seconds=work.seconds,
            save=lambda state: say(Saved(state)),
            save_seconds=work.save_seconds,
        )
    except Exception as error:
        return Broken(in_one_line(error))
    if trial.identity != work.identity:
        return Broken("the data where it ran are not those of where the race was started")
    return Made(trial, state, time.perf_counter() - begun)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that runs of one size take in one process.

    Attributes:
        once: on top, for the first run of its kind: what is compiled, what is loaded when it is first used.
        around: before and after the updates of a run.
        step: an update.
    """

    once: float
    around: float
    step: float


def timed(entry: Entry) -> Pace:
    """How long a run takes. Nothing of it is kept."""
    room(entry.framework)  # loading it, and reading the data, is not part of a run
    _ = entry.of
    begun = time.perf_counter()
    advance(entry, until=TIMED_STEPS)
    cold = time.perf_counter() - begun
    begun = time.perf_counter()
    first, state = advance(entry, until=TIMED_STEPS)
    warm = time.perf_counter() - begun
    around, once = warm - first.seconds, max(cold - warm, 0.0)
    if state is None:
        return Pace(once, around, first.seconds / max(len(first.curve), 1))
    second, _ = advance(entry, state, until=2 * TIMED_STEPS)
    return Pace(once, around, (second.seconds - first.seconds) / (len(second.curve) - len(first.curve)))


def in_one_line(error: Exception) -> str:
    """What an error says, and its kind where that says more than a caller's mistake."""
    said = " ".join(str(error).split())
    kind = type(error).__name__
    text = said if isinstance(error, ValueError) and said else f"{kind}: {said}" if said else kind
    return text if len(text) <= 500 else f"{text[:500]} ..."
