"""Here lives Grid: the experiment, every combination of what it varies."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any

from normula.data import Task
from normula.data import task as named_task
from normula.formula import Formula, Placement
from normula.formula.errors import nearest
from normula.framework import check_installed
from normula.race.factory import factory
from normula.race.lane import Lane
from normula.race.trial import Entry
from normula.spec import Recipe, plan
from normula.spec.kinds import INIT_RULES

OWN = "own"
"""As a rule for initial weights: the one that the placement's paper states, where it states one."""

OTHERWISE = "xavier_qkv"
"""What `own` is where no paper states a rule: what `torch.nn.Transformer` starts from."""

INITS: Mapping[str, str] = {OWN: f"the placement's own rule where its paper states one, else {OTHERWISE}", **INIT_RULES}

VARIED = ("depth", "width", "lr", "warmup", "batch", "optimiser", "norm", "init")
"""The fields of a grid that hold several values."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A race: each combination of contestant, depth, width, rate, warmup, batch, optimiser, norm, init and seed.

        >>> grid = Grid(placements=("pre", "post"), depth=(1, 2), lr=(1e-3,), task="copy", steps=4)
        >>> len(grid.entries)
        4

    Args:
        placements: names, formulas, Placements or Lanes; a text may go on with settings, as in `post, final=norm(x)`.
        depth, width: L and D of the models.
        lr, warmup, batch, optimiser: of the training, see `Recipe`.
        norm, init: see `Spec`; init may be `own` too.
        seeds: runs of each combination; each has weights and an order of the data of its own, the same for every
            contestant.
        steps, shape, beta1, beta2, weight_decay, clip, dtype: see `Recipe`.
        task, data, context: what is learnt, see `normula.data.task`.
        heads, hidden, activation, bias, dropout: see `Spec`.
        model: `package.module:function`, a model of the user's own for each placement; None for normula's.
        framework, device: what computes.
        allow_unequal: whether a contestant may have a learning rate of its own.

    Raises:
        ValueError: a field that cannot be, or a combination that cannot be built; found before any work.
    """

    placements: tuple[Lane | Placement | Formula | str, ...]
    depth: tuple[int, ...] = (6,)
    width: tuple[int, ...] = (32,)
    lr: tuple[float, ...] = (1e-3,)
    warmup: tuple[int, ...] = (0,)
    batch: tuple[int, ...] = (16,)
    optimiser: tuple[str, ...] = ("adam",)
    norm: tuple[str, ...] = ("layernorm",)
    init: tuple[str, ...] = (OWN,)
    seeds: int = 1
    steps: int = 150
    shape: str = "constant"
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    clip: float | None = None
    dtype: str = "float32"
    task: str = "text"
    data: str | tuple[str, ...] | None = None
    context: int | None = None
    heads: int = 2
    hidden: int | None = None
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0
    model: str | None = None
    framework: str = "torch"
    device: str = "cpu"
    allow_unequal: bool = False

    def __post_init__(self) -> None:
        single = (str, Lane, Placement, Formula)
        placements = (self.placements,) if isinstance(self.placements, single) else self.placements
        object.__setattr__(self, "placements", tuple(Lane.of(one) for one in placements))
        for name in VARIED:
            value = getattr(self, name)
            values = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} needs one or more different values, not {values!r}")
        if self.data is not None:
            one = isinstance(self.data, str | os.PathLike)
            object.__setattr__(self, "data", os.fspath(self.data) if one else tuple(map(os.fspath, self.data)))  # type: ignore[arg-type]
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise ValueError(f"seeds is a whole number of at least 1, not {self.seeds!r}")
        for rule in (*self.init, *(lane.init for lane in self.lanes if lane.init is not None)):
            if rule not in INITS:
                raise ValueError(f"init is one of {', '.join(INITS)}, not {rule!r}{nearest(str(rule), INITS)}")
        for updates in self.warmup:
            if not 0 <= updates < self.steps:
                raise ValueError(f"a warmup is from 0 to fewer than the {self.steps} steps, not {updates!r}")
        self._check_lanes()
        self._check_model()

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The contestants."""
        return self.placements  # type: ignore[return-value]

    @cached_property
    def of(self) -> Task:
        """The task."""
        return named_task(self.task, self.data, self.context)

    @property
    def size(self) -> int:
        """Runs in all, before any is made."""
        rates = sum(len(self._rates(lane)) * len(self._inits(lane)) for lane in self.lanes)
        others = math.prod(len(getattr(self, name)) for name in VARIED if name not in ("lr", "init"))
        return rates * others * self.seeds

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All runs, in an order that is fair: seed by seed, and at each point one contestant after the other."""
        return tuple(
            self._entry(lane, depth, width, lr, warmup, batch, optimiser, norm, init, seed)
            for seed, depth, width, batch, optimiser, norm, warmup in product(
                range(self.seeds), self.depth, self.width, self.batch, self.optimiser, self.norm, self.warmup
            )
            for place in range(max(len(self._rates(lane)) for lane in self.lanes))
            for rule in range(max(len(self._inits(lane)) for lane in self.lanes))
            for lane in self.lanes
            for lr in self._rates(lane)[place : place + 1]
            for init in self._inits(lane)[rule : rule + 1]
        )

    def check(self) -> None:
        """Build the plan of every model that differs, and read the data.

        Raises:
            ValueError: what cannot be, with the reason.
        """
        check_installed(self.framework)
        seen = {replace(entry.spec, seed=0): entry for entry in self.entries}
        for spec in seen:
            plan(spec)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        data["placements"] = [_lane_dict(lane) for lane in self.lanes]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grid:
        """From JSON."""
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in data.items()}
        values["placements"] = tuple(_lane(one) for one in data["placements"])
        return cls(**values)

    @property
    def digest(self) -> str:
        """Changes when anything does that can change a result."""
        text = json.dumps([entry.identity for entry in self.entries])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _entry(
        self,
        lane: Lane,
        depth: int,
        width: int,
        lr: float,
        warmup: int,
        batch: int,
        optimiser: str,
        norm: str,
        init: str,
        seed: int,
    ) -> Entry:
        rule = init
        if init == OWN:
            rule = "paper" if lane.placement.initial is not None else OTHERWISE
        return Entry(
            spec=self.of.spec(
                placement=lane.placement,
                final=lane.final,
                embed=lane.embed,
                layers=depth,
                width=width,
                heads=self.heads,
                hidden=self.hidden,
                norm=norm,
                activation=self.activation,
                bias=self.bias,
                dropout=self.dropout,
                init=rule,
                seed=seed,
            ),
            recipe=Recipe(
                steps=self.steps,
                lr=lr,
                warmup=warmup,
                shape=self.shape,
                batch=batch,
                optimiser=optimiser,
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=self.weight_decay,
                clip=self.clip,
                dtype=self.dtype,
                seed=seed,
            ),
            task=self.task,
            data=self.data,
            name=lane.name,
            init=init,
            model=self.model,
            framework=self.framework,
            device=self.device,
        )

    def _rates(self, lane: Lane) -> tuple[float, ...]:
        return self.lr if lane.lr is None else (lane.lr,)

    def _inits(self, lane: Lane) -> tuple[str, ...]:
        return self.init if lane.init is None else (lane.init,)

    def _check_lanes(self) -> None:
        if not self.lanes:
            raise ValueError("a race needs at least one placement, such as pre or x + f(norm(x))")
        names = [lane.name for lane in self.lanes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is given twice; a race needs different contestants")
        unequal = [lane.name for lane in self.lanes if lane.lr is not None]
        if unequal and not self.allow_unequal:
            raise ValueError(
                f"{unequal[0]} has a learning rate of its own, and a race is fair where all have the same rates; "
                "leave it out, or allow it with --allow-unequal"
            )

    def _check_model(self) -> None:
        if self.model is None:
            return
        if self.framework != "torch":
            raise ValueError(f"a model of your own is raced in torch, not in {self.framework}")
        factory(self.model)


def _lane_dict(lane: Lane) -> dict[str, Any]:
    data = {name: getattr(lane, name) for name in ("name", "final", "embed", "init", "lr")}
    return {"placement": lane.placement.to_dict(), **data}


def _lane(data: Mapping[str, Any]) -> Lane:
    return Lane(**{**data, "placement": Placement.from_dict(data["placement"])})
