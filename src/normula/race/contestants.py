"""The contestants as they are shown: drawn, in words, with what the literature expects of them."""

from __future__ import annotations

from dataclasses import replace

from normula.catalog import names_of
from normula.formula import Formula, Placement
from normula.race.lane import Lane
from normula.record import Contestant


def contestant(one: Placement, name: str | None = None, title: str | None = None) -> Contestant:
    """A placement, as it is shown; called by its own name, and by the catalogue's title where it has one."""
    entries = [entry for entry in names_of(one.formula) if entry.placement.computes_as(one)]
    entry = entries[0] if entries else None
    return Contestant(
        name=name or one.name,
        title=title or (entry.title if entry else one.name),
        placement=one.to_dict(),
        skip=one.formula.skip,
        words=one.formula.words,
        svg=one.formula.svg(),
        predictions=tuple((p.statement, p.source) for p in entry.predicts) if entry else (),
    )


def of_lane(lane: Lane) -> Contestant:
    """A lane, as it is shown: its placement's title, and in parentheses the settings it has of its own."""
    own = lane.name.removeprefix(lane.placement.name).removeprefix(", ")
    title = contestant(lane.placement).title + (f" ({own})" if own else "")
    return contestant(placed(lane), name=lane.name, title=title)


def placed(lane: Lane) -> Placement:
    """The lane's placement with the ends that the lane gives it."""
    one = lane.placement
    return replace(
        one,
        embed=one.embed if lane.embed is None else Formula(lane.embed),
        final=one.final if lane.final is None else Formula(lane.final),
    )
