"""The user's own evidence: a race, and a model that was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from normula.advise.situation import Situation
from normula.catalog import names_of, placement
from normula.formula import Formula, Placement
from normula.race.words import count, interval, listed
from normula.record import Advice, Choice, Contestant, Difference, Evidence, Facet, Race, Standing
from normula.record.reading import Reading

FAR = 2
"""A race at half the depth of the situation, or at twice it, is still near."""


def with_reading(situation: Situation, reading: Reading) -> Situation:
    """The situation of a model that was read: pretrained, with its formula for a base, and its depth.

    Raises:
        ValueError: no formula of it is known, or another base was given.
    """
    if situation.base is not None:
        raise ValueError("the base comes from the model that is read; leave out one of the two")
    known = [stage for stage in reading.stages if stage.known]
    if not known:
        raise ValueError("no formula was found in this model, so no advice can start from it; describe it by its base")
    stage = max(known, key=lambda stage: stage.layers)
    formula = Formula(stage.block)
    entries = names_of(formula)
    base = entries[0].placement if entries else placement(formula)
    depth = stage.layers if situation.depth is None else situation.depth
    return replace(situation, pretrained=True, base=base, depth=depth)


def with_race(advice: Advice, race: Race, situation: Situation) -> Advice:
    """The advice in the light of a race: what it shows outweighs the table, and what it says stands with each choice.

    Raises:
        ValueError: the race has no run that counts.
    """
    facets = list(dict.fromkeys(row.facet for row in race.standings if row.place))
    if not facets:
        raise ValueError("this race has no run that counts, so it says nothing; leave it out")
    facet = min(facets, key=lambda one: (abs(one.depth - (situation.depth or one.depth)), -one.depth))
    rows = [row for row in race.standings if row.facet == facet and row.place]
    gaps = [gap for gap in race.differences if gap.facet == facet]
    by_name = {one.name: one for one in race.contestants}

    def heard(choice: Choice) -> Choice:
        row = next((row for row in rows if _is(choice, by_name[row.name])), None)
        return choice if row is None else replace(choice, evidence=(*choice.evidence, _told(row, gaps, by_name, race)))

    first = heard(advice.first)
    alternatives = [heard(one) for one in advice.alternatives]
    cautions = [*advice.cautions, *_carries(facet, situation, race)]
    mine = next((row for row in rows if _is(first, by_name[row.name])), None)
    if mine is None:
        cautions.append(f"{first.title} was not in your race, which therefore says nothing of it.")
    elif mine.place > 1 and not situation.pretrained:
        winner = _winner(rows[0], by_name[rows[0].name], alternatives, _told(rows[0], gaps, by_name, race))
        alternatives = [first, *(one for one in alternatives if one.placement != winner.placement)]
        cautions.append(
            f"Your race puts {winner.title} before {first.title}, which the table of rules would have taken."
        )
        first = winner
    return replace(
        advice,
        first=first,
        alternatives=tuple(alternatives),
        avoid=tuple(heard(one) for one in advice.avoid if one.placement != first.placement),
        cautions=tuple(cautions),
    )


def _is(choice: Choice, contestant: Contestant) -> bool:
    """Whether a choice computes what a contestant does, whatever weights they start from."""
    raced = Placement.from_dict(contestant.placement)
    try:
        return placement(choice.placement).computes_as(raced)
    except ValueError:  # a base of which nothing is known
        return False


def _told(row: Standing, gaps: Sequence[Difference], by_name: dict[str, Contestant], race: Race) -> Evidence:
    """What the race says of a contestant."""
    better = [by_name[gap.better].title for gap in gaps if gap.shown and gap.worse == row.name]
    worse = [by_name[gap.worse].title for gap in gaps if gap.shown and gap.better == row.name]
    parts = [f"loss {interval(row.loss)} at rate {row.lr:g}, warmup {row.warmup}"]
    parts += [f"shown to be better than {listed(worse)}"] if worse else []
    parts += [f"shown to be worse than {listed(better)}"] if better else []
    parts += [] if better or worse else ["no difference to the others is shown"]
    parts += ["no setting at which every run learned"] if row.stable_rate.value == 0 else []
    where = f"depth {row.facet.depth}, width {row.facet.width}, {race.data.get('name', 'a task')}"
    return Evidence(kind="race", text=f"At {where}: {'; '.join(parts)}.", source="your race", scale="own")


def _winner(row: Standing, one: Contestant, alternatives: Sequence[Choice], told: Evidence) -> Choice:
    """The first of the race as a choice; as the table has it where it is one of its alternatives."""
    known = next((choice for choice in alternatives if _is(choice, one)), None)
    if known is not None:
        return replace(known, strength="own", why=f"It is first in your race. {known.why}")
    return Choice(
        placement=row.name,
        title=one.title,
        formula=str(one.placement["formula"]),
        why="It is first in your race.",
        cost="",
        strength="own",
        evidence=(told,),
    )


def _carries(facet: Facet, situation: Situation, race: Race) -> Iterable[str]:
    """How far the race carries."""
    seeds = len({trial.seed for trial in race.trials})
    yield f"Your race has {count(seeds, 'seed')}, depth {facet.depth} and width {facet.width}: a small model."
    if situation.depth and not situation.depth / FAR <= facet.depth <= situation.depth * FAR:
        yield f"The depth asked about is {situation.depth}; a race at a depth near that would say more."
