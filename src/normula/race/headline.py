"""The headline of a race: for each part of the grid who learns, who needs warmup, who is ahead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from normula.race.bootstrap import is_large
from normula.race.counted import FINISHED
from normula.race.words import at, capital, init_words, interval, label, listed, loss
from normula.record import Difference, Facet, Standing

Ranked = tuple[Facet, Sequence[Standing], Sequence[Difference]]

NONE = "no difference is shown."


def headlines(titles: Mapping[str, str], found: Sequence[Ranked]) -> Iterable[str]:
    """One sentence or two for each facet; depths of which the same is to be said stand together.

    Args:
        titles: the contestants by name.
        found: each facet with its ranking, the best first, and its differences.
    """
    facets = [facet for facet, _, _ in found]
    groups: dict[tuple[str, str], list[Facet]] = {}
    for facet, rows, gaps in found:
        where = label(facet, facets, without=("depth",))
        groups.setdefault((where, _headline(titles, rows, gaps)), []).append(facet)
    depths = len({facet.depth for facet in facets})
    if len({where for where, _ in groups}) > 1 and {text for _, text in groups} == {NONE}:
        yield "No difference is shown anywhere in the grid."
        return
    for (where, text), same in groups.items():
        if text:
            yield _stated(where, text, [facet.depth for facet in same], depths)


def _stated(where: str, text: str, of: Sequence[int], depths: int) -> str:
    if depths == 1:
        return at(where, text)
    if len(of) == depths:
        text = text.replace(NONE, "no difference is shown at any depth.") if text == NONE else f"at every depth, {text}"
        return at(where, text)
    return at(f"depth {listed([str(depth) for depth in of])}{', ' if where else ''}{where}", text)


def _headline(titles: Mapping[str, str], rows: Sequence[Standing], gaps: Sequence[Difference]) -> str:
    first, *rest = [*_failing(titles, rows), *_needing(titles, rows), *_order(titles, rows, gaps)] or [""]
    return " ".join([first, *map(capital, rest)])


def _failing(titles: Mapping[str, str], rows: Sequence[Standing]) -> Iterable[str]:
    """Who could not be run, who does not learn, or not always at its best."""
    lost = [titles[row.name] for row in rows if not row.place and row.outcomes.get("failed")]
    if lost:
        yield f"{listed(lost)} could not be run; see why below."
    never = [titles[row.name] for row in rows if _has_run(row) and not row.outcomes.get("learned")]
    if never:
        yield f"{listed(never)} {'does' if len(never) == 1 else 'do'} not learn at any setting tried."
    sometimes = [titles[row.name] for row in rows if row.outcomes.get("learned") and row.stable_rate.value == 0]
    if sometimes:
        yield f"{listed(sometimes)} {'has' if len(sometimes) == 1 else 'have'} no setting at which every run learns."


def _needing(titles: Mapping[str, str], rows: Sequence[Standing]) -> Iterable[str]:
    """Who needs warmup, and who does not."""
    needs = [row for row in rows if 0 < row.warmup_needed.value < math.inf]
    if not needs:
        return
    may = [titles[row.name] for row in needs if row.warmup_needed.low == 0]
    must = [titles[row.name] for row in needs if titles[row.name] not in may]
    free = [titles[row.name] for row in rows if row.warmup_needed.value == 0]
    clauses = [f"{listed(must)} {'needs' if len(must) == 1 else 'need'} warmup"] if must else []
    clauses += [f"{listed(may)} {'needs' if len(may) == 1 else 'need'} warmup with some seeds"] if may else []
    clauses += [f"{listed(free)} {'does' if len(free) == 1 else 'do'} not"] if free else []
    yield "; ".join(clauses) + "."


def _order(titles: Mapping[str, str], rows: Sequence[Standing], gaps: Sequence[Difference]) -> Iterable[str]:
    """Who is ahead of whom, each at its own best setting."""
    placed = [row for row in rows if not math.isnan(row.loss.value)]
    if len(placed) < 2:
        return
    best = placed[0]
    behind = {gap.worse: gap for gap in gaps if gap.better == best.name}
    level = [row for row in placed[1:] if not behind[row.name].shown]
    beaten = [row for row in placed[1:] if behind[row.name].shown]
    if any(math.isnan(gap.gap.low) for gap in behind.values()):
        yield _with_one_seed(titles, best.name, behind)
    elif not beaten:
        among = listed([titles[row.name] for row in placed])
        yield NONE if len(placed) == len(rows) else f"no difference is shown between {among}."
    else:
        first = listed([titles[row.name] for row in (best, *level)])
        tail = " (no difference is shown between them)" if level else ""
        losers = listed([f"{titles[row.name]} by {interval(behind[row.name].gap)} nats" for row in beaten])
        yield f"at its best setting each, {first}{tail} {'end' if level else 'ends'} below {losers}."


def _with_one_seed(titles: Mapping[str, str], best: str, behind: Mapping[str, Difference]) -> str:
    """What one seed shows: large gaps alone, and not that they are no chance."""
    large = [f"{loss(gap.gap.value)} nats below {titles[name]}" for name, gap in behind.items() if is_large(gap.gap)]
    if not large:
        return "no difference is seen with the one seed that was run."
    return f"with one seed, {titles[best]} ends {listed(large)}; chance is not ruled out."


def where_weights_decide(titles: Mapping[str, str], found: Sequence[Ranked]) -> Iterable[str]:
    """What is seen under some initial weights, and not under others: trouble, or a difference.

    Args:
        titles: the contestants by name.
        found: each facet with its ranking and its differences.
    """
    inits = list(dict.fromkeys(facet.init for facet, _, _ in found))
    troubled = False
    for name, title in titles.items():
        mine = [row for _, rows, _ in found for row in rows if row.name == name]
        trouble = {init: max((_trouble(row) for row in mine if row.facet.init == init), default=0) for init in inits}
        good = [init_words(init) for init in inits if trouble[init] == 0]
        for worst, words in ((1, "needs warmup"), (2, "has no setting at which every run learns")):
            bad = [init_words(init) for init in inits if trouble[init] == worst]
            if good and bad:
                troubled = True
                yield f"{title} {words} with {listed(bad)}, not so with {listed(good)}: the initial weights decide."
    if not troubled:
        yield from _differing(titles, found)


def _differing(titles: Mapping[str, str], found: Sequence[Ranked]) -> Iterable[str]:
    """Differences that are shown under some initial weights and not under others, all else the same."""
    facets = [facet for facet, _, _ in found]
    pairs: dict[tuple[str, str, str], dict[str, bool]] = {}
    for facet, _, gaps in found:
        for gap in gaps:
            first, second = sorted((gap.better, gap.worse), key=list(titles).index)
            where = label(facet, facets, without=("init",))
            pairs.setdefault((where, first, second), {})[init_words(facet.init)] = gap.shown
    for (where, first, second), shown in pairs.items():
        there, not_there = ([init for init, one in shown.items() if one is wanted] for wanted in (True, False))
        if there and not_there:
            text = (
                f"{titles[first]} and {titles[second]} differ with {listed(there)}, and no difference is shown with "
                f"{listed(not_there)}: the initial weights decide."
            )
            yield at(where, text)


def _trouble(row: Standing) -> int:
    """0 for none, 1 where it needs warmup, 2 where no setting learns in every run."""
    if row.stable_rate.value == 0:
        return 2
    return 1 if 0 < row.warmup_needed.value < math.inf else 0


def _has_run(row: Standing) -> bool:
    return any(row.outcomes.get(word) for word in FINISHED)
