"""Here lives Limits: how a race is made, beside its grid: where its runs are made, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normula.formula.errors import nearest
from normula.framework import room
from normula.race.grid import Grid
from normula.race.pool import Engine, Pool, cores
from normula.race.work import SAVE_SECONDS

MANY = 10_000
"""Runs from which on a grid is taken for a slip of the pen, until it is said that it is meant."""

ENGINES = ("local", "ray")

PER_GPU = 4
"""Runs side by side on one GPU: small models leave most of it idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a race is made, beside its grid.

    Args:
        workers: runs side by side; None for as many as there are cores.
        engine: `local`, or `ray` for a cluster.
        address: of the Ray cluster.
        minutes: after which runs stop where they are, to be gone on with.
        trials: of the grid to be made, the first ones in its order.
        max_seconds: in updates that a run may take; then it is dropped.
        halving: whether each contestant goes on with the better half of its settings, after a quarter and a half of
            the steps.
        save_seconds: between two saved states of a run.

    Raises:
        ValueError: a limit that cannot be.
    """

    workers: int | None = None
    engine: str = "local"
    address: str | None = None
    minutes: float | None = None
    trials: int | None = None
    max_seconds: float | None = None
    halving: bool = False
    save_seconds: float = SAVE_SECONDS

    def __post_init__(self) -> None:
        for name in ("workers", "trials"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        for name in ("minutes", "max_seconds", "save_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is a positive number, not {value!r}")
        if self.engine not in ENGINES:
            raise ValueError(
                f"engine is one of {', '.join(ENGINES)}, not {self.engine!r}{nearest(str(self.engine), ENGINES)}"
            )
        if self.address is not None and self.engine != "ray":
            raise ValueError("an address is that of a Ray cluster; say engine ray too, or leave it out")
        if self.halving and self.trials is not None:
            raise ValueError(
                "halving compares all settings of a contestant, and with a number of trials some would be missing; "
                "leave out one of the two, or limit the minutes"
            )

    @property
    def budget(self) -> dict[str, Any]:
        """What belongs to the race itself, and is the same when it is gone on with."""
        kept = {"max_seconds": self.max_seconds, "halving": self.halving}
        return {name: value for name, value in kept.items() if value}

    def opened(self, grid: Grid) -> Engine:
        """The engine, for where the runs of a grid compute."""
        on_gpu = grid.device == "cuda"
        if self.engine == "ray":
            from normula.race.ray import RayEngine

            return RayEngine(self.address, self.workers, gpus=1 / PER_GPU if on_gpu else 0.0)
        if not on_gpu:
            return Pool(self.workers or cores())
        gpus = room(grid.framework).gpus()
        return Pool(
            self.workers or min(cores(), PER_GPU * gpus), lambda place: {"CUDA_VISIBLE_DEVICES": str(place % gpus)}
        )
