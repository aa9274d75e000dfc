"""Advice shown in the terminal: what to take, what else, what to leave and what to do, each with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from normula.record import Advice, Choice, Evidence
from normula.report.words import plain

STRENGTHS: Final = {
    "exact": "algebra settles it",
    "strong": "evidence from large models, more than one source",
    "moderate": "evidence from large models, one source",
    "weak": "evidence from small models, algebra or reports alone",
    "contested": "sources disagree",
    "own": "your own race",
}


def print_advice(advice: Advice, console: Console) -> None:
    """Print it: the first choice with all its evidence, the others with where theirs stands; JSON has all."""
    said = ", ".join(_fact(name, value) for name, value in advice.situation.items())
    _say(console, f"For: {said or 'nothing was said of the model'}")
    for title, choices in (("Take", (advice.first,)), ("Or", advice.alternatives), ("Leave", advice.avoid)):
        if choices:
            _say(console, title, style="bold")
        for choice in choices:
            _choice(choice, console, whole=choice is advice.first)
    if advice.practices:
        _say(console, "And", style="bold")
    for practice in advice.practices:
        _say(console, practice.text, 2)
        _sources(practice.evidence, console)
    if advice.cautions:
        _say(console, "Take care", style="bold")
    for text in advice.cautions:
        _say(console, text, 2)


def _choice(choice: Choice, console: Console, *, whole: bool) -> None:
    formula = f"   {choice.formula}" if choice.formula and choice.formula != choice.placement else ""
    _say(console, f"{choice.placement}  {choice.title}{formula}", 2, style="bold")
    _say(console, f"{choice.why} ({STRENGTHS[choice.strength]})", 4)
    if choice.cost:
        _say(console, f"Cost: {choice.cost}", 4)
    if not whole:
        _sources(choice.evidence, console)
        return
    for one in choice.evidence:
        _say(console, f"- {one.text} [{one.kind}: {one.source}]", 6, style="dim")


def _sources(pieces: Sequence[Evidence], console: Console) -> None:
    """Where the evidence stands; what the user measured is told whole."""
    own = [one for one in pieces if one.scale == "own"]
    for one in own:
        _say(console, f"- {one.text} [{one.kind}: {one.source}]", 6, style="dim")
    elsewhere = "; ".join(dict.fromkeys(one.source for one in pieces if one.scale != "own"))
    if elsewhere:
        _say(console, f"[{elsewhere}]", 4, style="dim")


def _fact(name: str, value: object) -> str:
    if value is True:
        return name
    return f"{value:.3g} parameters" if isinstance(value, float) else f"{name} {value}"


def _say(console: Console, text: str, indent: int = 0, style: str = "") -> None:
    console.print(Padding(Text(plain(text), style=style), (0, 0, 0, indent)))
