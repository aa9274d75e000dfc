"""The claims ledger shown: a page of the documentation, tables for the terminal, a claim's chart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from normula.record import ClaimResult, ClaimVerdict
from normula.record import Figure as Number
from normula.report.words import number, plain

_STYLES: Final[dict[ClaimVerdict, str]] = {
    "holds": "green",
    "holds in part": "yellow",
    "not shown here": "yellow",
    "does not hold here": "red",
    "artefact of its probe": "red",
}

_WIDE: Final = 140
"""Columns from which a key number stands with its name in the table of all claims."""


def claims_page(results: Sequence[ClaimResult]) -> str:
    """The ledger in Markdown: a table of all claims, then a section for each. The same numbers give the same text."""
    lines = [
        "# The claims",
        "",
        "What the literature, and what goes round beside it, says of norms and residual streams: each statement with a "
        "measurement and a verdict. A verdict is worked out from the numbers each time, and compared with the one on "
        "record. This page is made by `normula claims --slow --markdown`; without `--slow` those that need training, "
        "which stand last, are left out. `normula claims NAME` measures one of them, and `--svg FILE` draws its chart. "
        "Numbers have three digits; in parentheses stands what the statement, a closed form or another implementation "
        'says. "Not shown here" is the verdict where intervals over the seeds leave it open.',
        "",
        "| name | statement | verdict | key number |",
        "|---|---|---|---|",
    ]
    for one in results:
        cells = (f"[{one.name}](#{one.name})", one.statement, one.verdict, _key(one))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    for one in results:
        lines += ["", *_section(one)]
    return "\n".join(lines) + "\n"


def print_claims(results: Sequence[ClaimResult], console: Console | None = None) -> None:
    """Print the ledger, or one claim with all its numbers; a verdict that is not the recorded one is said last.

    Args:
        results: what was measured.
        console: where to; None for stdout.
    """
    console = console or Console()
    if len(results) == 1:
        _print_one(results[0], console)
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, shown in (("name", [one.name for one in results]), ("verdict", [one.verdict for one in results])):
            table.add_column(column, no_wrap=True, min_width=max(map(len, shown), default=0))
        table.add_column("key number", overflow="fold")
        for one in results:
            verdict = Text(one.verdict, style=_STYLES[one.verdict])
            key = _key(one) if console.width >= _WIDE else _both(one.figures[0]) if one.figures else ""
            table.add_row(_line(one.name), verdict, _line(key))
        console.print(table)
        seconds = sum(one.seconds for one in results)
        console.print(_line(f"{len(results)} claims, {seconds:.0f} seconds of work. normula claims NAME tells more."))
    for one in results:
        if one.changed:
            console.print(
                _line(f"CHANGED  {one.name}: on record is {one.recorded!r}, now {one.verdict!r}.", "bold red")
            )


def claim_svg(result: ClaimResult) -> str:
    """The claim's chart as an SVG file.

    Raises:
        ValueError: the claim has none.
    """
    if not result.series:
        raise ValueError(f"the claim {result.name} is numbers alone and has no chart; leave out --svg")
    from normula.report.chart import DASHES, Chart, Line  # load matplotlib, which the tables do without
    from normula.report.lines import line_chart
    from normula.report.plates import missing, wide
    from normula.report.standalone import standalone
    from normula.report.theme import MARKERS, SERIES

    log = wide(y for line in result.series for y in line.y)
    looks = zip(result.series, cycle(SERIES), cycle(DASHES), cycle(MARKERS), strict=False)
    chart = Chart(
        title=result.name,
        seen=result.statement,
        lines=[
            Line(label=one.label, x=one.x, y=one.y, colour=colour, dash=dash, marker=marker)
            for one, colour, dash, marker in looks
        ],
        x_label=result.x,
        y_label=result.y,
        log=log,
        notes=[note for line in result.series for note in missing(line.label, line.y, log)],
    )
    return standalone(line_chart(chart, f"claim-{result.name}"))


def _section(one: ClaimResult) -> list[str]:
    changed = f" (on record: {one.recorded})" if one.changed else ""
    return [
        f"## {one.name}",
        "",
        f"**{one.verdict.capitalize()}{changed}.** {_prose(one.statement)}",
        "",
        f"- Source: {_prose(one.source)}",
        f"- Measured: {_prose(one.how)}",
        "",
        *(_grid(one.figures) or _list(one.figures)),
        "",
        _prose(one.text),
    ]


def _list(figures: Sequence[Number]) -> list[str]:
    """One number a row."""
    rows = [f"| {_cell(one.label)} | {_value(one.value)} | {_cell(one.expected)} |" for one in figures]
    return ["| | measured | said |", "|---|---|---|", *rows]


def _grid(figures: Sequence[Number]) -> list[str]:
    """Numbers whose labels read `row: column` as such a table; empty where they do not."""
    parts = [one.label.partition(": ") for one in figures]
    rows, columns = (list(dict.fromkeys(part[i] for part in parts)) for i in (0, 2))
    cells = {(row, column): _both(one) for (row, _, column), one in zip(parts, figures, strict=True)}
    if "" in columns or len(rows) < 2 or len(columns) < 2 or len(cells) < len(figures):
        return []
    head = ["", *map(_cell, columns)]
    body = [[_cell(row), *(_cell(cells.get((row, column), "")) for column in columns)] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body)]


def _print_one(one: ClaimResult, console: Console) -> None:
    console.print(_line(one.name, "bold"))
    console.print(_line(one.statement))
    console.print()
    for title, text in (("source", one.source), ("measured", one.how)):
        console.print(_line(title, "bold"))
        console.print(Padding(_line(text), (0, 0, 0, 2)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("said", overflow="fold")
    for figure in one.figures:
        table.add_row(_line(figure.label), _value(figure.value), _line(figure.expected))
    console.print(table)
    console.print(_line(one.text))
    console.print()
    console.print(_line(f"{one.verdict}   ({one.seconds:.1f} seconds)", f"bold {_STYLES[one.verdict]}"))


def _key(one: ClaimResult) -> str:
    """The first of a claim's numbers, which is the one that decides."""
    return f"{one.figures[0].label}: {_both(one.figures[0])}" if one.figures else ""


def _both(one: Number) -> str:
    return f"{_value(one.value)} ({one.expected})" if one.expected else _value(one.value)


def _value(value: float) -> str:
    """A whole number as it is, another to three digits."""
    whole = abs(value) < 1e5 and value == int(value)
    return str(int(value)).replace("-", "−") if whole else number(float(f"{value:.3g}"))


def _line(text: str, style: str = "") -> Text:
    """Never read as markup."""
    return Text(plain(text), style=style)


def _cell(text: str) -> str:
    """For a table in Markdown, where a bar would end the cell."""
    return _prose(text).replace("|", "\\|")


def _prose(text: str) -> str:
    """A text without line ends, whose stars and underscores are no emphasis."""
    return " ".join(plain(text.replace("\n", " ")).split()).replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
