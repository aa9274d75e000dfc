"""All claims, by the names of their files; run one, or all over the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules

import normula.claims.files as files
from normula.claims.claim import Claim
from normula.formula.errors import nearest
from normula.framework import room, using
from normula.race import Job, cores, run_all
from normula.record import ClaimResult

Report = Callable[[int, int, str], None]


def names() -> tuple[str, ...]:
    """The claims, in the order of their files."""
    return tuple(sorted(module.name.replace("_", "-") for module in iter_modules(files.__path__)))


def claim(name: str) -> Claim:
    """A claim by its name.

    Raises:
        ValueError: no claim is called so.
    """
    if name not in names():
        raise ValueError(f"no claim is called {name!r}{nearest(name, names())}; they are {', '.join(names())}")
    found = import_module(f"{files.__name__}.{name.replace('-', '_')}").CLAIM
    assert isinstance(found, Claim)
    return found


def measure(name: str, framework: str = "torch") -> ClaimResult:
    """Measure one claim."""
    with using(framework):
        return claim(name).run(name)


def claims(
    wanted: Sequence[str] = (),
    *,
    framework: str = "torch",
    workers: int | None = None,
    report: Report = lambda done, of, what: None,
) -> tuple[ClaimResult, ...]:
    """Measure claims, all of them where none is named, spread over the cores.

    Args:
        wanted: their names.
        framework: that stacks are built and measured in: `torch` or `flax`.
        workers: processes; None for one a core.
        report: called with the claims done, the claims in all and what was found last.

    Returns:
        The results in the order of the names; `changed` says where a verdict is not the recorded one.

    Raises:
        ValueError: no claim is called so; found before any is measured.
        ImportError: the framework is not installed.
    """
    chosen = list(dict.fromkeys(wanted)) or list(names())
    for name in chosen:
        claim(name)
    room(framework)
    if len(chosen) == 1:
        return (measure(chosen[0], framework),)
    found: dict[int, ClaimResult] = {}
    for place, result in run_all([Job(measure, (name, framework)) for name in chosen], workers or cores()):
        found[place] = result
        report(len(found), len(chosen), f"{result.name}: {result.verdict}")
    return tuple(found[place] for place in sorted(found))
