"""Here lives the summary of a race for a terminal: verdict and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from normula.record import Race
from normula.report.race_groups import Found
from normula.report.race_ranking import EDGE, RANKING, STABILITY, Row, ranking_rows, stability_rows
from normula.report.terminal import line_of, print_verdict
from normula.report.words import SYMBOLS, capital

_KINDS: Final = {
    "headline": "",
    "difference": "Differences",
    "stability": "Stability",
    "factor": "What decided",
    "caution": "Take care",
}
"""Kinds of statements in the order in which they are printed; outcomes stand in the tables."""


def race_terminal(race: Race, console: Console) -> None:
    """Print a race in short: verdict, ranking with the compute that each got, what each minds.

    Args:
        race: the record.
        console: where to.
    """
    print_verdict(race.verdict, console, _KINDS)
    if not race.trials:
        console.print("No training run was made.")
        return
    found = Found(race)
    titles = {one.name: one.title for one in race.contestants}
    shown = RANKING.index("seconds") + 1
    rows = [(where, who, cells[:shown]) for where, who, cells in ranking_rows(found, titles)]
    _print_table("Ranking, each at its best setting", RANKING[:shown], rows, console)
    signs = ", ".join(f"{sign} {word}" for word, sign in SYMBOLS.items())
    console.print(line_of(f"{signs}; {EDGE} on the edge of the grid", "dim"))
    if rows := stability_rows(found, titles):
        console.print()
        _print_table("Rate and warmup", STABILITY, rows, console)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Row], console: Console) -> None:
    """The rows of a facet below its name, where there are several."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("contestant", overflow="fold")
    for column in columns:
        table.add_column(column, justify="left" if column == "came to" else "right", overflow="fold")
    last = ""
    for where, who, cells in rows:
        if where != last:
            table.add_row(line_of(capital(where), "bold"))
        table.add_row(*map(line_of, (who, *cells)))
        last = where
    console.print(table)
