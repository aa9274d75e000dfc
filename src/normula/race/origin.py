"""Here lives Origin: what the results of a race depend on beside its grid, so that no run is gone on with another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from normula.framework import packages, room_path
from normula.race.factory import sources_of
from normula.race.grid import Grid
from normula.record import Environment, environment

ROOT = Path(__file__).parents[1]

COMPUTES = ("catalog", "data", "formula", "oracle", "spec", "framework.py")
"""Of normula's sources, those that decide a number whatever the framework."""

AT_THE_RACE = ("factory.py", "grid.py", "lane.py", "outcome.py", "trial.py")

READS_ONLY = ("capture", "sources")
"""Of a framework's room, what is about models that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What computed a race, and from what.

    Attributes:
        environment: versions and machine.
        code: digest of the sources of normula that compute.
        data: digest of the task's data.
        factory: digest of the files of the user's own model; empty without one.
    """

    environment: Environment
    code: str
    data: str
    factory: str

    @classmethod
    def of(cls, grid: Grid) -> Origin:
        """That of a race that is made here and now."""
        return cls(
            environment=environment(*packages(grid.framework), device=grid.device),
            code=_digest(_computing(grid.framework)),
            data=grid.of.digest,
            factory="" if grid.model is None else _digest(sources_of(grid.model)),
        )

    def changes(self, now: Origin, grid: Grid) -> list[str]:
        """What is not as it was, and would change results."""
        found = []
        before, after = (one.environment.versions | {"python": one.environment.python} for one in (self, now))
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                found.append(f"{name} was {before.get(name)} and is {after.get(name)}")
        if self.code != now.code and before["normula"] == after["normula"]:
            found.append("the sources of normula have changed")
        if self.data != now.data:
            found.append(f"the data of the task {grid.task} have changed")
        if self.factory != now.factory:
            found.append(f"the file of {grid.model} has changed")
        return found


@cache
def maker(framework: str) -> str:
    """What computes in this process: versions, and a digest of normula's sources."""
    versions = environment(*packages(framework)).versions
    return ", ".join([*(f"{name} {one}" for name, one in sorted(versions.items())), _digest(_computing(framework))])


def _computing(framework: str) -> list[Path]:
    """The files whose text decides what a training run comes to."""
    own = room_path(framework)
    roots = [*(ROOT / name for name in COMPUTES), *(ROOT / "race" / name for name in AT_THE_RACE), own]
    files = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*.*")))]
    reads_only = [own / name for name in READS_ONLY]
    return [
        file
        for file in files
        if file.suffix in (".py", ".toml") and not any(file.is_relative_to(folder) for folder in reads_only)
    ]


def _digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        found.update(f"{file.name} {len(text)}\n".encode())
        found.update(text)
    return found.hexdigest()[:16]
