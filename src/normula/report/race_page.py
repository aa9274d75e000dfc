"""Here lives the page of a race: what was found, the map, the ranking, the curves, every run, how to repeat it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from normula.record import Race, Statement, Trial
from normula.report.contestants import Shown, shown
from normula.report.page import templates
from normula.report.plates import bar_plate
from normula.report.race_figures import race_figures
from normula.report.race_groups import Found
from normula.report.race_ranking import EDGE, RANKING, STABILITY, ranking_rows, stability_rows
from normula.report.race_spec import race_command, spec_rows
from normula.report.svg import drawing_svg
from normula.report.training import share_bars
from normula.report.words import capital, count, listed

KINDS = {
    "headline": "What was found",
    "difference": "Differences",
    "stability": "Stability",
    "factor": "What decided",
    "caution": "Take care",
}
"""Kinds of statements, in their order on the page; the outcomes stand in the table of the ranking."""

VARIED = {
    "width": "Width",
    "batch": "Batch",
    "optimiser": "Optimiser",
    "norm": "Norm",
}
"""Fields of a run that are columns where they differ."""


def race_page(race: Race, *, command: str | None = None) -> str:
    """A race as one page that needs no network and no script; the same record gives the same text, to the byte.

    Args:
        race: the record.
        command: what to type to repeat it; None for one worked out from the grid.
    """
    contestants, found = shown(race.contestants), Found(race)
    titles = {one.name: one.title for one in contestants}
    bars = share_bars(race.shares)
    varied = [name for name in VARIED if len({getattr(trial, name) for trial in race.trials}) > 1]
    return (
        templates()
        .get_template("race.html.j2")
        .render(
            race=race,
            contestants=contestants,
            titles=titles,
            title=_title(contestants),
            lede=_lede(race, contestants),
            verdict=_verdict(race.verdict),
            drawings={one.name: _drawing(one) for one in contestants},
            figures={figures.kind: figures.plates for figures in race_figures(race)},
            ranking=(RANKING, ranking_rows(found, titles)) if race.trials else None,
            stability=(STABILITY, rows) if (rows := stability_rows(found, titles)) else None,
            shares=bar_plate(bars, "shares", "Shares of the variance of the final losses", "") if bars else None,
            edge=EDGE,
            lost=_lost(race.trials, titles),
            varied={name: VARIED[name] for name in varied},
            rows=[(trial, [str(getattr(trial, name)) for name in varied]) for trial in race.trials],
            spec=spec_rows(race),
            command=command or race_command(race),
        )
    )


def _title(contestants: Sequence[Shown]) -> str:
    titles = [one.title for one in contestants]
    if len(titles) > 3:
        return f"{len(titles)} placements raced"
    return " against ".join(titles) if len(titles) == 2 else listed(titles)


def _lede(race: Race, contestants: Sequence[Shown]) -> str:
    """One line: what was raced."""
    who = f"{listed([one.title for one in contestants])}: " if len(contestants) > 3 else ""
    depths = listed([str(depth) for depth in race.grid["depth"]])
    steps = count(race.grid["steps"], "update")
    runs = f"{len(race.trials)} of {count(race.planned, 'run')} made"
    text = f"depth {depths}, {steps} on {race.data['name']}, {count(race.grid['seeds'], 'seed')}; {runs}."
    return who + (text if who else capital(text))


def _verdict(statements: Sequence[Statement]) -> list[tuple[str, str, list[str]]]:
    groups = [(kind, title, [one.text for one in statements if one.kind == kind]) for kind, title in KINDS.items()]
    return [group for group in groups if group[2]]


def _drawing(one: Shown) -> Markup | None:
    found = drawing_svg(one.contestant.svg)
    return Markup(found) if found is not None else None  # checked element by element there


def _lost(trials: Sequence[Trial], titles: dict[str, str]) -> list[tuple[str, str, str, int]]:
    """Runs that failed or were dropped: who, what, why, how many."""
    found: dict[tuple[str, str, str], int] = {}
    for trial in trials:
        if trial.outcome in ("failed", "dropped"):
            key = (titles.get(trial.name, trial.name), trial.outcome, trial.note or "no reason was recorded")
            found[key] = found.get(key, 0) + 1
    return [(*key, amount) for key, amount in found.items()]
