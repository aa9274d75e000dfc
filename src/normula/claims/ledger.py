"""All claims, by the names of their files; run one, or all over the cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import normula.claims.files as files
import normula.claims.trained as trained
from normula.claims.claim import Claim, TrainedClaim
from normula.formula.errors import nearest
from normula.framework import room, using
from normula.race import Job, cores, run_all
from normula.record import ClaimResult

Report = Callable[[int, int, str], None]


def names(*, slow: bool = False) -> tuple[str, ...]:
    """The claims, in the order of their files; those that need training come last, and only where they are wanted."""
    return (*_names(files), *(_names(trained) if slow else ()))


def claim(name: str) -> Claim | TrainedClaim:
    """A claim by its name.

    Raises:
        ValueError: no claim is called so.
    """
    known = names(slow=True)
    if name not in known:
        raise ValueError(f"no claim is called {name!r}{nearest(name, known)}; they are {', '.join(known)}")
    folder = files if name in _names(files) else trained
    found = import_module(f"{folder.__name__}.{name.replace('-', '_')}").CLAIM
    assert isinstance(found, Claim | TrainedClaim)
    return found


def measure(name: str, framework: str = "torch") -> ClaimResult:
    """Measure one claim that needs no training."""
    with using(framework):
        found = claim(name)
        assert isinstance(found, Claim)
        return found.run(name)


def claims(
    wanted: Sequence[str] = (),
    *,
    slow: bool = False,
    framework: str = "torch",
    workers: int | None = None,
    report: Report = lambda done, of, what: None,
) -> tuple[ClaimResult, ...]:
    """Measure claims, all of them where none is named, spread over the cores.

    Args:
        wanted: their names.
        slow: whether those that need training are wanted too, where none is named.
        framework: that stacks are built, measured and trained in: `torch` or `flax`.
        workers: processes; None for one a core.
        report: called with the parts done, the parts in all and what was found last: a claim is a part, and so is each
            of its trainings.

    Returns:
        The results in the order of the names; `changed` says where a verdict is not the recorded one.

    Raises:
        ValueError: no claim is called so; found before any is measured.
        ImportError: the framework is not installed.
    """
    chosen = {name: claim(name) for name in wanted or names(slow=slow)}
    room(framework)
    parts = {name: _parts(name, one, framework) for name, one in chosen.items()}
    todo = list(dict.fromkeys(job for jobs in parts.values() for job in jobs))
    made: dict[Job, tuple[Any, float]] = {}
    found: dict[str, ClaimResult] = {}
    for place, result in _run(todo, workers or cores()):
        made[todo[place]] = result
        whole = [name for name, jobs in parts.items() if name not in found and all(job in made for job in jobs)]
        found |= {name: _found(name, chosen[name], [made[job] for job in parts[name]]) for name in whole}
        report(len(made), len(todo), _last(found, whole, parts))
    return tuple(found[name] for name in chosen)


def timed(job: Job) -> tuple[Any, float]:
    """What a job gives, and the seconds that it took."""
    start = time.perf_counter()
    result = job.run(lambda message: None)
    return result, time.perf_counter() - start


def _names(folder: ModuleType) -> tuple[str, ...]:
    return tuple(sorted(module.name.replace("_", "-") for module in iter_modules(folder.__path__)))


def _parts(name: str, one: Claim | TrainedClaim, framework: str) -> tuple[Job, ...]:
    """What is to be run for a claim."""
    jobs = one.jobs(framework) if isinstance(one, TrainedClaim) else (Job(measure, (name, framework)),)
    return tuple(Job(timed, (job,)) for job in jobs)


def _run(jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Any]]:
    """One job here, several in processes of their own."""
    if len(jobs) > 1:
        yield from run_all(jobs, workers)
    else:
        yield from enumerate(job.run(lambda message: None) for job in jobs)


def _found(name: str, one: Claim | TrainedClaim, results: Sequence[tuple[Any, float]]) -> ClaimResult:
    if isinstance(one, TrainedClaim):
        return one.run(name, [result for result, _ in results], sum(seconds for _, seconds in results))
    ((result, _),) = results
    assert isinstance(result, ClaimResult)
    return result


def _last(found: Mapping[str, ClaimResult], whole: Sequence[str], parts: Mapping[str, Sequence[Job]]) -> str:
    """What was found by the last part: a verdict, or that there is one training less to wait for."""
    if whole:
        return f"{whole[-1]}: {found[whole[-1]].verdict}"
    return f"training; {len(found)} of {len(parts)} claims are judged"
