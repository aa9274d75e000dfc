"""The verdict of a race in plain words: only what the runs show, facet by facet, with what chance may have done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from normula.race.bootstrap import is_large
from normula.race.cautions import cautions, unfinished
from normula.race.field import Field
from normula.race.headline import headlines, where_weights_decide
from normula.race.sentences import deciding
from normula.race.words import at, interval, label, listed
from normula.record import Difference, Interval, Share, Standing, Statement, Trial

Found = tuple[Field, Sequence[Standing], Sequence[Difference]]
"""A facet's runs, its ranking, and the differences in it."""


def verdict(
    titles: Mapping[str, str],
    found: Sequence[Found],
    trials: Sequence[Trial],
    *,
    planned: int,
    shares: Sequence[Share] = (),
    marked: Mapping[str, str] | None = None,
    unequal: Sequence[str] = (),
    weights: bool = True,
    note: str = "",
) -> tuple[Statement, ...]:
    """All that the runs let one say, the headline first.

    Args:
        titles: the contestants by name.
        found: what each facet shows.
        trials: all runs.
        planned: how many there were to be.
        shares: what explains the final losses.
        marked: contestants that are nonstandard, and why.
        unequal: contestants with a learning rate of their own.
        weights: whether the race chose the initial weights.
        note: why the race is not whole.
    """
    said = [("caution", text) for text in unfinished(trials, planned, note)]
    if any(not math.isnan(row.loss.value) for _, rows, _ in found for row in rows):
        ranked = [(field.facet, rows, gaps) for field, rows, gaps in found]
        said += [("headline", text) for text in headlines(titles, ranked)]
        said += [("headline", text) for text in where_weights_decide(titles, ranked)]
        said += [("outcome", text) for text in _outcomes(titles, found)]
        said += [("difference", text) for text in _differences(titles, found)]
        said += [("factor", text) for text in deciding(shares)]
        said += [("stability", text) for text in _stability(titles, found)]
    placed = [(field, rows) for field, rows, _ in found]
    said += [("caution", text) for text in cautions(titles, placed, trials, marked or {}, unequal, weights=weights)]
    return tuple(Statement(kind=kind, text=text) for kind, text in said)


def _outcomes(titles: Mapping[str, str], found: Sequence[Found]) -> Iterable[str]:
    facets = [field.facet for field, _, _ in found]
    for field, rows, _ in found:
        for row in rows:
            if not row.runs:
                continue
            came = ", ".join(f"{number} {word}" for word, number in row.outcomes.items())
            best = ""
            if not math.isnan(row.loss.value):
                best = f"; best loss {interval(row.loss)} at rate {row.lr:g}, warmup {row.warmup}"
            yield at(label(field.facet, facets), f"{titles[row.name]}: {came} of {row.runs}{best}.")


def _differences(titles: Mapping[str, str], found: Sequence[Found]) -> Iterable[str]:
    """Of each facet, those to its best contestant; the record has all."""
    facets = [field.facet for field, _, _ in found]
    for field, rows, gaps in found:
        where = label(field.facet, facets)
        losses = {row.name: row.loss for row in rows}
        of = [gap for gap in gaps if gap.better == rows[0].name]
        large = [gap for gap in of if gap.shown or (math.isnan(gap.gap.low) and is_large(gap.gap))]
        for gap in large:
            values = f"{interval(losses[gap.better])} against {interval(losses[gap.worse])}"
            chance = "" if gap.shown else " With one seed, chance is not ruled out."
            text = f"{titles[gap.better]} ends {interval(gap.gap)} nats below {titles[gap.worse]}: {values}.{chance}"
            yield at(where, text)
        if level := [gap for gap in of if gap not in large]:
            others = listed([f"{titles[gap.worse]} (gap {interval(gap.gap)})" for gap in level])
            best = f"{titles[rows[0].name]}, {interval(rows[0].loss)} nats,"
            yield at(where, f"no difference is shown between {best} and {others}.")


def _stability(titles: Mapping[str, str], found: Sequence[Found]) -> Iterable[str]:
    """Up to which rate each learns, where they differ."""
    facets = [field.facet for field, _, _ in found]
    for field, rows, _ in found:
        rates = {row.name: row.stable_rate for row in rows if not math.isnan(row.stable_rate.value)}
        tried = {lr for name in rates for lr in field.rates(name)}
        if len({one.value for one in rates.values()}) > 1 and len(tried) > 1:
            parts = ", ".join(f"{titles[name]} {_up_to(one)}" for name, one in rates.items())
            yield at(label(field.facet, facets), f"at some warmup every run learns with {parts}.")


def _up_to(rate: Interval) -> str:
    if not rate.value:
        return "at no rate tried"
    unsure = f" [{rate.low:g}, {rate.high:g}]" if rate.low < rate.high else ""
    return f"up to rate {rate.value:g}{unsure}"
