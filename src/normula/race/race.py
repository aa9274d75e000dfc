"""The race: a grid of training runs, made side by side, kept in a file, and answered."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normula.formula import Formula, Placement
from normula.framework import room
from normula.race.answer import answer
from normula.race.drive import Drive, Report
from normula.race.estimate import duration, estimate
from normula.race.grid import Grid
from normula.race.lane import Lane
from normula.race.limits import MANY, Limits
from normula.race.loggers import loggers
from normula.race.origin import Origin
from normula.race.programme import Programme
from normula.race.soonest import PLAIN, SOONEST, soonest
from normula.race.store import Store, StoreError
from normula.race.trial import Entry, at_hand
from normula.race.work import SAVE_SECONDS
from normula.record import Race, Trial
from normula.spec import NormulaWarning

INTERRUPTED = "interrupted"
"""The note of a race that Ctrl-C has ended."""

Contestant = Lane | Placement | Formula | str


def race(
    placements: Iterable[Contestant] | Contestant | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    sure: bool = False,
    log: Sequence[str] = (),
    report: Report = lambda done, of, what: None,
    say: Callable[[str], None] = lambda line: None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    max_seconds: float | None = None,
    halving: bool = False,
    save_seconds: float = SAVE_SECONDS,
    **grid: Any,
) -> Race:
    """Train placements against each other: every combination of a grid, the same data, weights and budget for all.

    Processes read the script that calls this again: call it under `if __name__ == "__main__":`.

    Args:
        placements: names, formulas, Placements or Lanes; a text may go on with settings, as in `post, final=norm(x)`.
        out: a new file in which every finished run is kept; None to keep them in memory alone.
        resume: the file of a race to be gone on with, in place of placements and grid.
        sure: that a grid of more than 10000 runs is meant.
        log: where runs are written as well: `tensorboard:FOLDER`, `wandb:FOLDER`, `mlflow:FOLDER`.
        report: called with the runs made, the runs in all, and what was made last.
        say: called with a line for the user now and then.
        workers, engine, address, minutes, trials, max_seconds, halving, save_seconds: see `Limits`.
        grid: every field of `Grid`: depth, width, lr, warmup, batch, optimiser, norm, init, seeds, steps, task ...;
            as framework also `soonest`: the one in which the race is made soonest on this machine, found by timing.

    Returns:
        The record. After an interrupt (Ctrl-C) it holds what was finished, and its note says so.

    Raises:
        ValueError: what cannot be, found before any work; a race that cannot be gone on with, and why; a file that
            cannot be written.
        ImportError: something is not installed; the message names the extra.
        ChildProcessError: no process can be started.
    """
    limits = Limits(
        workers=workers,
        engine=engine,
        address=address,
        minutes=minutes,
        trials=trials,
        max_seconds=max_seconds,
        halving=halving,
        save_seconds=save_seconds,
    )
    logs = loggers(log)
    at_hand.cache_clear()  # the user's files may have changed since an earlier race
    with ExitStack() as stack:
        if resume is None:
            if placements is None:
                raise ValueError("a race needs placements, such as pre and post, or resume= the file of one")
            chosen = checked(grid_of(placements, **grid), sure=sure)
            if grid.get("framework") == SOONEST:
                chosen = soonest(chosen, limits, say)
            store = stack.enter_context(Store.create(out, chosen, Origin.of(chosen), limits.budget))
        else:
            if placements is not None or grid or out is not None or limits.budget:
                raise ValueError("a race that is gone on with has its grid, limits and file; leave out all but resume")
            store = stack.enter_context(Store.resume(resume))
            limits = replace(limits, **store.budget)
            chosen = unchanged(store)

        def keep(trial: Trial) -> None:
            for one in logs:
                one.write(trial)

        note = _made(chosen, store, limits, report, say, keep)
        return answer(
            chosen,
            store.trials,
            environment=store.origin.environment,
            digest=store.origin.data,
            seconds=store.seconds,
            note=note,
            budget=store.budget | ({"minutes": minutes} if minutes else {}) | ({"trials": trials} if trials else {}),
        )


def grid_of(placements: Iterable[Contestant] | Contestant, **fields: Any) -> Grid:
    """The grid of a race that is made here and now: files by their whole path, the device by its name.

    Where the framework is still to be chosen by timing, it is in PyTorch. Where the steps are left out, there are at
    least twice as many as in the longest warmup.

    Raises:
        ValueError: a field that cannot be.
    """
    values = dict(fields)
    if values.get("framework") == SOONEST:
        values["framework"] = PLAIN
    if values.get("data") is not None:
        values["data"] = _absolute(values["data"])
    if "device" in values:
        values["device"] = room(values.get("framework")).device(values["device"])
    values.setdefault("steps", max(Grid.steps, 2 * _longest(values.get("warmup", 0))))
    return Grid(placements=placements, **values)  # type: ignore[arg-type]


def _longest(warmup: Any) -> int:
    """The longest of one or several warmups; 0 where they are none, which the grid will say."""
    found = warmup if isinstance(warmup, Iterable) and not isinstance(warmup, str) else (warmup,)
    return max((one for one in found if isinstance(one, int)), default=0)


def checked(grid: Grid, *, sure: bool) -> Grid:
    """The same grid, if it can be raced.

    Raises:
        ValueError: it cannot, and why; or it is so large that one must be sure.
    """
    if grid.size > MANY and not sure:
        raise ValueError(f"this grid has {grid.size} runs, and more than {MANY} are made only when you are sure of it")
    grid.check()
    return grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a race would do.

    Attributes:
        runs: of the grid.
        left: runs that are still to be made.
        seconds: that those take, side by side.
        workers: side by side.
    """

    runs: int
    left: int
    seconds: float
    workers: int


def outlook(grid: Grid, limits: Limits, *, made: Collection[str] = ()) -> Outlook:
    """How long a race would take; nothing of it is kept.

    Args:
        grid, limits: of the race.
        made: identities of the runs that are made already.
    """
    left = [entry for entry in _chosen(grid, limits) if entry.identity not in made]
    if not left:
        return Outlook(runs=grid.size, left=0, seconds=0.0, workers=0)
    with limits.opened(grid) as engine:
        found = estimate(engine, left, halving=limits.halving)
    return Outlook(runs=grid.size, left=len(left), seconds=found.all(left), workers=found.workers)


def read(path: str | os.PathLike[str]) -> Race:
    """What the file of a race says, also while the race is made.

    Raises:
        StoreError: there is no such file, or it is no race.
    """
    with Store.open(path) as store:
        made, planned = store.trials, store.planned
        note = "" if len(made) == planned else f"{len(made)} of {planned} runs are made"
        return answer(
            store.grid,
            made,
            environment=store.origin.environment,
            digest=store.origin.data,
            seconds=store.seconds,
            note=note,
            budget=store.budget,
        )


def _made(
    grid: Grid, store: Store, limits: Limits, report: Report, say: Callable[[str], None], keep: Callable[[Trial], None]
) -> str:
    """Make what is to be made; why it is not all, where it is not."""
    begun = time.monotonic()
    deadline = begun + 60 * limits.minutes if limits.minutes is not None else math.inf
    failed = [identity for identity, trial in store.finished().items() if trial.outcome == "failed"]
    for identity in failed:
        store.forget(identity)
    entries = _chosen(grid, limits)
    programme = Programme({entry.identity: entry for entry in entries}, store, halving=limits.halving)
    if failed:
        say(f"{_counted(len(failed))} that failed {'is' if len(failed) == 1 else 'are'} tried again")
    try:
        if not programme.is_over:
            left = [entry for identity, entry in programme.entries.items() if identity not in programme.made]
            with limits.opened(grid) as engine:
                expected = estimate(engine, left, halving=limits.halving)
                say(
                    f"{_counted(len(left))} to make, about {duration(expected.all(left))} on {expected.workers} workers"
                )
                Drive(
                    engine=engine,
                    programme=programme,
                    store=store,
                    estimate=expected,
                    deadline=deadline,
                    max_seconds=limits.max_seconds or math.inf,
                    save_seconds=limits.save_seconds,
                    report=report,
                    finished=keep,
                ).run()
    except KeyboardInterrupt:
        store.note("interrupted")
        return INTERRUPTED
    if not programme.is_over:
        return f"stopped after {limits.minutes:g} minutes"
    return f"the first {limits.trials} runs of the grid" if len(entries) < grid.size else ""


def _counted(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _chosen(grid: Grid, limits: Limits) -> list[Entry]:
    """The runs that are to be made: in the order of the grid, so that a part of it is fair to all."""
    return list(grid.entries[: limits.trials])


def unchanged(store: Store) -> Grid:
    """The grid of a race that is gone on with.

    Raises:
        StoreError: something has changed since that would change results.
    """
    grid = store.grid
    now = Origin.of(grid)
    changes = store.origin.changes(now, grid)
    if not changes and grid.digest != store.digest:
        changes = ["the runs of its grid are others"]
    if changes:
        raise StoreError(
            f"{store.path} cannot be gone on with, as its parts would not fit together: {'; '.join(changes)}. Undo "
            "that, or start a new race"
        )
    if (before := store.origin.environment.machine) != (here := now.environment.machine):
        warnings.warn(
            f"the race began on {before} and goes on on {here}; the last digits of its parts may differ",
            NormulaWarning,
            stacklevel=2,
        )
    grid.check()
    return grid


def _absolute(data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> str | tuple[str, ...]:
    """The user's files, found again from another folder."""
    if isinstance(data, str | os.PathLike):
        return str(Path(data).absolute())
    return tuple(str(Path(one).absolute()) for one in data)
