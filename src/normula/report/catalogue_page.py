"""The catalogue as a page of the documentation, in Markdown."""

from __future__ import annotations

from normula.catalog import Entry, entries
from normula.explain import explain


def catalogue_page() -> str:
    """A table of all placements, then a section for each."""
    lines = [
        "# The catalogue",
        "",
        "Named placements, in the order in which they are best learned. "
        "This page is made by `normula list --markdown`.",
        "",
        "| name | usual name | formula | final |",
        "|---|---|---|---|",
    ]
    for entry in entries():
        placed = entry.placement
        lines.append(f"| [`{entry.name}`](#{entry.name}) | {entry.title} | `{placed.formula}` | `{placed.final}` |")
    for entry in entries():
        lines += ["", *_section(entry)]
    return "\n".join(lines) + "\n"


def _section(entry: Entry) -> list[str]:
    found, placed = explain(entry.name), entry.placement
    rows = [
        ("also called", ", ".join(f"`{alias}`" for alias in entry.aliases)),
        ("formula", f"`{placed.formula}`"),
        ("before and after", f"embed `{placed.embed}`, final `{placed.final}`"),
        *((f"stream `{name}`", f"starts as `{start}`") for name, start in placed.streams),
        *(("first layers", f"`{part.formula}`, up to layer `{part.until}`") for part in placed.ranges),
        ("skip path", f"`{placed.formula.skip}`"),
        ("adds", found.added),
        ("initial weights", entry.initial_source),
        ("paper", str(entry.paper)) if entry.paper else ("origin", str(entry.origin)),
        ("used by", "; ".join(user.model + ("" if user.sure else " (said, not read)") for user in entry.users)),
        ("cost", entry.cost),
        ("take it", entry.when),
        ("leave it", entry.when_not),
        ("source of the advice", entry.advice_source),
    ]
    lines = [f"## {entry.name}", "", f"**{entry.title}.** {placed.formula.words}", "", "```text"]
    lines += [placed.formula.drawing(), "```", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(text)} |" for name, text in rows if text]
    lines += [f"| constant | `{constant.expr}`: {_cell(constant.meaning)} |" for constant in entry.constants]
    if entry.predicts:
        lines += ["", "What the literature says will happen:", ""]
        lines += [f"- {one.statement} ({one.source})" for one in entry.predicts]
    if entry.notes:
        lines += ["", "Notes:", ""]
        lines += [f"- {note}" for note in entry.notes]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
