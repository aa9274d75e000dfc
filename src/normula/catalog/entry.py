"""Here lives Entry: a placement and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normula.formula import InitialWeights, Placement, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where a placement was first described."""

    authors: str
    title: str
    year: int
    arxiv: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        surnames = self.authors.split(", ")
        who = surnames[0] if len(surnames) == 1 else f"{surnames[0]} et al." if len(surnames) > 2 else self.authors
        return f"{who.replace(', ', ' and ')}, {self.title}, {self.year}" + (
            f", arXiv {self.arxiv}" if self.arxiv else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A model that has the placement; `sure` where it was read in code or paper."""

    model: str
    source: str
    sure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the literature says will happen, to be held against what is measured."""

    statement: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number in the formula, and what it is."""

    expr: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the catalogue. `origin` stands where there is no single paper."""

    placement: Placement
    title: str
    aliases: tuple[str, ...]
    norm: str
    initial_source: str
    paper: Paper | None
    origin: str | None
    users: tuple[User, ...]
    constants: tuple[Constant, ...]
    cost: str
    when: str
    when_not: str
    advice_source: str
    predicts: tuple[Prediction, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.placement.name

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called: name, title, aliases."""
        return (self.name, self.title, *self.aliases)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """From a table of the catalogue file."""
        initial = dict(data["init"])
        source = initial.pop("source")
        placement = Placement(
            name=data["name"],
            formula=data["formula"],
            embed=data["embed"],
            final=data["final"],
            streams=data.get("streams", ()),
            ranges=tuple(Range(**part) for part in data.get("ranges", ())),
            initial=InitialWeights(**initial),
            operator=data.get("operator"),
        )
        return cls(
            placement=placement,
            title=data["title"],
            aliases=tuple(data["aliases"]),
            norm=data["norm"],
            initial_source=source,
            paper=Paper(**data["paper"]) if "paper" in data else None,
            origin=data.get("origin"),
            users=tuple(User(**user) for user in data["users"]),
            constants=tuple(Constant(**constant) for constant in data["constants"]),
            cost=data["cost"],
            when=data["when"],
            when_not=data["when_not"],
            advice_source=data["advice_source"],
            predicts=tuple(Prediction(**prediction) for prediction in data["predicts"]),
            notes=tuple(data["notes"]),
        )
