"""The main job: draw placements, measure them, train them against each other, and say what was found."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from normula.catalog import placement
from normula.compare.verdict import verdict
from normula.data import corpus, task
from normula.flow import depth_point, flow, popular
from normula.formula import Formula, Placement
from normula.framework import packages, room
from normula.race import Entry, Job, cores, effects, run, run_all
from normula.race.contestants import contestant
from normula.record import (
    Comparison,
    DepthPoint,
    Flow,
    PopularPoint,
    Trial,
    environment,
)
from normula.spec import NormulaWarning, Recipe, Spec, plan

Report = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a comparison does; every field can be chosen.

    Args:
        layers, width, heads, norm, activation: of the models that race and of the flow over training steps.
        steps, batch, context: updates, sequences in a batch, tokens in a sequence.
        lr, warmup, init: the grid; every combination is run.
        seeds: runs of each combination; each has weights and an order of the data of its own, the same for
            every placement.
        depths, flow_width: of the stacks that are measured at initialisation.
        probe: of the measurements at initialisation.
        flow_steps: training steps up to which the flow is measured.
        data: a text file; None for the sources of Python's standard library.
        framework: `torch` or `flax`.
        workers: processes; None for one a core.

    Raises:
        ValueError: a field that cannot be.
    """

    layers: int = 12
    width: int = 32
    heads: int = 2
    norm: str = "layernorm"
    activation: str = "relu"
    steps: int = 150
    batch: int = 8
    context: int = 32
    lr: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    warmup: tuple[int, ...] = (0, 50)
    init: tuple[str, ...] = ("xavier", "normal")
    seeds: int = 2
    depths: tuple[int, ...] = (5, 10, 20, 30, 40, 50)
    flow_width: int = 64
    probe: str = "random"
    flow_steps: int = 20
    data: str | None = None
    framework: str = "torch"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "data", os.fspath(self.data))  # a path travels as text in the record
        for name in ("lr", "warmup", "init", "depths"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} needs one or more different values, not {values!r}")
        for rate in self.lr:
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f"a learning rate is a positive number, not {rate!r}")
        for name in ("steps", "batch", "context", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)!r}")
        if self.flow_steps < 0:
            raise ValueError(f"flow_steps is at least 0, not {self.flow_steps!r}")
        for updates in self.warmup:
            if not 0 <= updates < max(self.steps, 1):
                raise ValueError(f"a warmup is from 0 to fewer than the {self.steps} steps, not {updates!r}")
        if any(depth < 1 for depth in self.depths):
            raise ValueError(f"depths are at least 1, not {self.depths!r}")
        if self.probe not in ("random", "sum"):
            raise ValueError(f"the probe at initialisation is random or sum, not {self.probe!r}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is at least 1, not {self.workers!r}")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def compare(
    placements: Iterable[str | Formula | Placement] = ("pre", "post"),
    settings: Settings | None = None,
    *,
    report: Report = lambda done, of, what: None,
    **values: Any,
) -> Comparison:
    """Compare placements: their drawings, what they do to signal and gradient, and how they train.

    Args:
        placements: names, formulas' texts, Formulas or Placements.
        settings: what to do; or give its fields by name.
        report: called with the jobs done, the jobs in all and what was done last.

    Returns:
        A record with the verdict. After an interrupt (Ctrl-C) it holds what was finished, and says so.

    Raises:
        ValueError: a placement, a setting or a text that cannot be; found before any work.
    """
    start = time.perf_counter()
    chosen = settings if settings is not None else Settings(**values)
    if settings is not None and values:
        raise ValueError(f"give settings or fields, not both: {', '.join(values)}")
    placed = _distinct(placement(one) for one in placements)
    for one in placed:
        if one.operator is not None:
            raise ValueError(
                f"{one.name} holds several streams in a registered operator; a comparison measures one stream"
            )
    room(chosen.framework)  # what is not installed is found here
    text = corpus(chosen.data, chosen.context)
    work = _Plan(chosen, placed)
    work.collect(report)
    trials = tuple(sorted(work.trials, key=lambda t: (t.name, t.init, t.lr, t.warmup, t.seed)))
    contestants = tuple(contestant(one) for one in placed)
    shares = effects(trials)
    stuck_loss = trials[0].stuck_loss if trials else math.nan
    return Comparison(
        contestants=contestants,
        settings=chosen.to_dict(),
        data={"name": text.name, "digest": text.digest, "stuck_loss": stuck_loss},
        flows=tuple(work.flows),
        depths=tuple(sorted(work.depths, key=lambda p: (p.name, p.init, p.width, p.depth))),
        popular=tuple(work.popular),
        trials=trials,
        planned=len(work.entries),
        shares=shares,
        verdict=verdict(contestants, trials, len(work.entries), shares, work.flows, work.depths),
        environment=environment(*packages(chosen.framework)),
        seconds=time.perf_counter() - start,
    )


class _Plan:
    """The jobs of a comparison, and what has come back from them."""

    def __init__(self, settings: Settings, placed: Sequence[Placement]) -> None:
        self.settings, self.placed = settings, placed
        self.entries = [self._entry(*point) for point in self._grid()]
        for one in placed:  # what cannot be built is found here, not in the middle of the work
            for spec in (self._spec(one, settings.init[0], 0), *(self._stack(one, depth) for depth in settings.depths)):
                plan(spec)
        self.flows: list[Flow] = []
        self.depths: list[DepthPoint] = []
        self.popular: list[PopularPoint] = []
        self.trials: list[Trial] = []

    def collect(self, report: Report) -> None:
        """Run all jobs; an interrupt, or a process that dies, keeps what is there."""
        jobs = self._jobs()
        try:
            for done, (_, result) in enumerate(run_all(jobs, self.settings.workers or cores()), start=1):
                report(done, len(jobs), self._take(result))
        except KeyboardInterrupt:
            pass  # the verdict says how much was finished
        except ChildProcessError as error:
            warnings.warn(f"{error}; what was finished is reported", NormulaWarning, stacklevel=2)
        self.flows.sort(key=lambda one: [p.name for p in self.placed].index(one.name))
        self.popular.sort(key=lambda one: (one.probe, one.name, one.depth))

    def _take(self, result: Any) -> str:
        match result:
            case Flow():
                self.flows.append(result)
                return f"flow of {result.name}"
            case DepthPoint():
                self.depths.append(result)
                return f"{result.name} at depth {result.depth}"
            case Trial():
                self.trials.append(result)
                return f"{result.name}, {result.init}, rate {result.lr:g}, warmup {result.warmup}: {result.outcome}"
            case tuple():
                self.popular += result
                return f"the popular figure of {result[0].name}"
        raise AssertionError(type(result))

    def _jobs(self) -> list[Job]:
        """Measurements first: they are short, and the first thing to look at."""
        s = self.settings
        jobs = [
            Job(
                _training_flow,
                (self._spec(one, s.init[0], 0), s.flow_steps, _middle(s.lr), s.data, s.context, s.framework),
            )
            for one in self.placed
        ]
        jobs += [Job(_popular, (one, sorted({1, *s.depths}), s.framework)) for one in self.placed if _is_popular(one)]
        for depth in sorted(s.depths, reverse=True):
            jobs += [Job(_depth_point, (self._stack(one, depth), s.probe, s.framework)) for one in self.placed]
        return jobs + [Job(run, (entry,)) for entry in self.entries]

    def _grid(self) -> list[tuple[int, float, int, str, Placement]]:
        s = self.settings
        return [
            (seed, lr, warmup, init, one)
            for seed in range(s.seeds)
            for init in s.init
            for lr in s.lr
            for warmup in s.warmup
            for one in self.placed
        ]

    def _entry(self, seed: int, lr: float, warmup: int, init: str, one: Placement) -> Entry:
        s = self.settings
        spec = self._spec(one, init, seed)
        return Entry(
            spec=spec,
            recipe=Recipe(steps=s.steps, lr=lr, warmup=warmup, batch=s.batch, seed=seed),
            task="text",
            data=s.data,
            framework=s.framework,
        )

    def _spec(self, one: Placement, init: str, seed: int) -> Spec:
        s = self.settings
        return Spec(
            placement=one,
            layers=s.layers,
            width=s.width,
            heads=s.heads,
            norm=s.norm,
            activation=s.activation,
            causal=True,
            vocab=256,
            context=s.context,
            init=init,
            seed=seed,
        )

    def _stack(self, one: Placement, depth: int) -> Spec:
        s = self.settings
        heads = math.gcd(s.flow_width, 4)
        return Spec(
            placement=one,
            layers=depth,
            width=s.flow_width,
            heads=heads,
            norm=s.norm,
            activation=s.activation,
            causal=True,
            init=s.init[0],
        )


def _training_flow(spec: Spec, steps: int, lr: float, path: str | None, context: int, framework: str) -> Flow:
    data = task("text", path, context)
    return flow(spec, seeds=2, probe="loss", task=data, steps=steps, lr=lr, batch=8, framework=framework)


def _depth_point(spec: Spec, probe: str, framework: str) -> DepthPoint:
    return depth_point(spec, seeds=2, probe=probe, framework=framework)


def _popular(one: Placement, depths: Sequence[int], framework: str) -> tuple[PopularPoint, ...]:
    return popular(one, depths, framework=framework)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _is_popular(one: Placement) -> bool:
    """Whether it can stand in the popular figure, whose blocks are one linear map each."""
    inner = any(call.inner for formula in one.formulas for call in formula.calls)
    return one.formula.is_step and not one.streams and not inner


def _distinct(placed: Iterable[Placement]) -> list[Placement]:
    found: list[Placement] = []
    for one in placed:
        for other in found:
            if one.name == other.name:
                raise ValueError(f"{one.name} is given twice; a comparison needs different placements")
            if one.computes_as(other):
                raise ValueError(f"{other.name} and {one.name} are the same; a comparison needs different placements")
        found.append(one)
    if not found:
        raise ValueError("a comparison needs at least one placement, such as pre or x + f(norm(x))")
    return found
