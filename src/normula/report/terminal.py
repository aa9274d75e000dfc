"""Here lives the summary of a comparison for a terminal: drawings, verdict, tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normula.flow.findings import NULL
from normula.formula import Formula, FormulaError
from normula.record import Comparison, Statement
from normula.report.contestants import Shown, shown
from normula.report.runs import Grid, grid
from normula.report.words import listed, number, plain

_GAP = 4
"""Columns between two drawings."""
_HEAD = 4
"""Lines above a drawing."""
_POINT = 30
"""Columns that the point of the grid takes up in the table of outcomes."""
_STYLES = {"learned": "green", "stuck": "yellow", "diverged": "red", "": "dim"}
_KINDS = {
    "headline": "",
    "difference": "Differences",
    "factor": "What decided",
    "flow": "Signal and gradient",
    "caution": "Take care",
}
"""Kinds of statements in the order in which they are printed; outcomes stand in the tables."""


def terminal(comparison: Comparison, console: Console) -> None:
    """Print a comparison in short: drawings, verdict, outcomes, best losses, measurements that are void.

    Args:
        comparison: the record.
        console: where to; at least 80 columns wide for all to fit.
    """
    contestants, runs = shown(comparison.contestants), grid(comparison)
    _drawings(contestants, console)
    print_verdict(comparison.verdict, console)
    if comparison.trials:
        for table in (*_outcomes(contestants, runs, console.width), _best(contestants, runs)):
            console.print(table)
            console.print()
    else:
        console.print("No training run was finished.")
    for text in _voids(comparison, contestants):
        console.print(line_of(f"VOID  {text}", "bold"))


def line_of(text: str, style: str = "") -> Text:
    """Never read as markup: a verdict has brackets."""
    return Text(plain(text), style=style)


def _drawings(contestants: Sequence[Shown], console: Console) -> None:
    """As many beside each other as fit."""
    blocks = [_drawing(one) for one in contestants]
    row: list[list[str]] = []
    for block in blocks:
        if row and sum(_width(other) + _GAP for other in row) + _width(block) > console.width:
            _print_row(row, console)
            row = []
        row.append(block)
    if row:
        _print_row(row, console)


def _drawing(one: Shown) -> list[str]:
    """What it is called, and the picture."""
    head = one.title if one.label == one.title else f"{one.label}: {one.title}"
    try:
        picture = Formula(one.formula).drawing().splitlines()
    except FormulaError:  # a record by hand
        picture = ["(no drawing)"]
    formula = one.formula if one.formula != one.title else ""
    return [*(plain(line) for line in (head, formula, f"skip path: {one.contestant.skip}", "")), *picture]


def _width(block: Sequence[str]) -> int:
    return max(map(len, block))


def _print_row(row: Sequence[Sequence[str]], console: Console) -> None:
    """Heads at the top; drawings at the bottom, where the stream enters."""
    height = max(map(len, row))
    stood = [[*block[:_HEAD], *[""] * (height - len(block)), *block[_HEAD:]] for block in row]
    for i, parts in enumerate(zip(*stood, strict=True)):
        line = (" " * _GAP).join(part.ljust(_width(block)) for part, block in zip(parts, row, strict=True))
        console.print(Text(line.rstrip(), style="bold" if i == 0 else ""), overflow="ellipsis", no_wrap=True)
    console.print()


def print_verdict(statements: Sequence[Statement], console: Console, kinds: Mapping[str, str] = _KINDS) -> None:
    """Print what was found in words, kind by kind; each kind has a title, the headline none."""
    for kind, title in kinds.items():
        texts = [statement.text for statement in statements if statement.kind == kind]
        if texts and title:
            console.print(Text(title, style="bold"))
        for text in texts:
            bullet, style = ("- ", "") if title else ("", "bold")
            lines = textwrap.wrap(bullet + plain(text), console.width, subsequent_indent=" " * len(bullet))
            console.print(Text("\n".join(lines), style=style))
        if texts:
            console.print()


def _outcomes(contestants: Sequence[Shown], runs: Grid, width: int) -> Iterable[Table]:
    """One row a point of the grid, one column a placement; as many tables as it takes for whole columns."""
    points = [(init, warmup, lr) for init in runs.inits for warmup in runs.warmups for lr in runs.rates]
    cells = {one.name: [runs.cell(one.name, *point) for point in points] for one in contestants}
    widest = max(len(text) for one in contestants for text in (one.label, *(cell.words for cell in cells[one.name])))
    each = max(1, (width - _POINT) // (widest + 2))
    for start in range(0, len(contestants), each):
        table = table_of("Outcomes" if start == 0 else "Outcomes, continued", ("weights", "warmup", "rate"))
        part = contestants[start : start + each]
        for one in part:
            table.add_column(line_of(one.label))
        for place, (init, warmup, lr) in enumerate(points):
            texts = [Text(cells[one.name][place].words, style=_STYLES[cells[one.name][place].worst]) for one in part]
            table.add_row(line_of(init), str(warmup), f"{lr:g}", *texts)
        yield table


def _best(contestants: Sequence[Shown], runs: Grid) -> Table:
    """Each placement at its own best point."""
    names = ("weights", "placement", "loss [range over seeds]", "rate", "warmup", "outcome")
    table = table_of("Best losses, nats", names)
    for init in runs.inits:
        for one in contestants:
            best = runs.best(one.name, init)
            if best is None:
                table.add_row(line_of(init), line_of(one.label), "none finite", "", "", "")
                continue
            first = best.trials[0]
            outcome = Text(best.words, style=_STYLES[best.worst])
            table.add_row(
                line_of(init), line_of(one.label), Text(best.loss), f"{first.lr:g}", str(first.warmup), outcome
            )
    return table


def table_of(title: str, names: Iterable[str]) -> Table:
    """A table with these columns, without rows yet."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, justify="right" if name in ("rate", "warmup") else "left")
    return table


def _voids(comparison: Comparison, contestants: Sequence[Shown]) -> Iterable[str]:
    """What of the measurements says nothing."""
    for flow in comparison.flows:
        yield from (f"{flow.name}: {finding.text}" for finding in flow.findings if finding.weight == "void")
    for one in contestants:
        depths = [str(point.depth) for point in comparison.depths if point.name == one.name and point.void]
        if depths:
            yield f"{one.title}: the probe over depth was blind at {listed(depths)} layers."
        passes = [
            point.norm_passes for point in comparison.popular if point.name == one.name and point.norm_passes < NULL
        ]
        if passes:
            yield (
                f"{one.title} in the popular figure: its last norm lets {number(max(passes), 1)} of the gradient of "
                "the summed output through. That it vanishes is a property of the sum, at any depth."
            )
