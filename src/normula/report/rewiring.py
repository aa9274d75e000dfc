"""The plan of a rewiring shown in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding

from normula.record.rewiring import Change, Parameters, Plan

PRESERVED = {
    "function": "function: exactly, it was run with random gains and biases",
    "function at initialisation": "function at initialisation only: while every gain is 1 and every bias 0",
    "parameters": "parameters only: what is computed is another function of them",
    "nothing": "nothing: the weights were drawn anew",
    "unknown": "not known before it is run",
}
"""What a plan's `preserved` is called."""


def print_plan(plan: Plan, title: str, console: Console) -> None:
    """Before and after, the changes, the parameters, what is preserved."""

    def say(text: str, indent: int = 0) -> None:
        console.print(Padding(text, (0, 0, 0, indent)), highlight=False, markup=False)

    say(f"{title} to {plan.to}")
    say_stages(plan.before, plan.after, say)
    say("changes" if plan.changes else "changes: none", 2)
    for line in _changes(plan.changes):
        say(line, 4)
    for label, parameters in (("added", plan.added), ("removed", plan.removed), ("kept, unused", plan.unused)):
        say(f"parameters {label}: {_counted(parameters)}", 2)
    for line in _norms(plan):
        say(line, 2)
    for note in plan.notes:
        say(f"! {note}", 2)
    say(f"preserved: {PRESERVED[plan.preserved]}", 2)
    if plan.difference is not None:
        say(f"outputs on the example change by {plan.difference:.3g} of their size (root mean square)", 2)
    say("proved: read back and replayed" if plan.proof == "replayed" else "not yet read back", 2)


def say_stages(before: Sequence[str], after: Sequence[str], say: Callable[[str, int], None]) -> None:
    """Each stage as it was, and what comes of it; the new ones by where they are, where that is not the same."""
    for old, new in zip(before, after, strict=False):
        say(old, 2)
        say(f"-> {new.partition(': ')[2]}" if _where(old) == _where(new) else f"-> {new}", 4)
    for new in after[len(before) :]:
        say(f"-> {new}", 4)


def _changes(changes: tuple[Change, ...]) -> Iterator[str]:
    """One line for what is done alike in several layers."""
    for (site, text), members in groupby(
        sorted(changes, key=lambda one: (one.site, _pattern(one))), key=lambda one: (one.site, _pattern(one))
    ):
        held = list(members)
        times = f"   ({len(held)} x)" if len(held) > 1 else ""
        yield f"{site}: {text if len(held) > 1 else held[0].change}{times}"


def _pattern(change: Change) -> str:
    """A change whatever the number of its layer."""
    return ".".join("#" if part.isdigit() else part for part in change.change.split("."))


def _where(line: str) -> str:
    return line.partition(": ")[0]


def _counted(parameters: Parameters) -> str:
    if not parameters.names:
        return "none"
    shown = ", ".join(parameters.names[:4]) + (" ..." if len(parameters.names) > 4 else "")
    return f"{parameters.count:,} numbers in {len(parameters.names)} ({shown})"


def _norms(plan: Plan) -> Iterator[str]:
    """The norms on the stream by kind and epsilon, as their modules have it."""
    kinds = sorted({(one.kind, one.eps) for one in plan.norms})
    for kind, eps in kinds:
        members = [one for one in plan.norms if (one.kind, one.eps) == (kind, eps)]
        by_origin = {
            origin: sum(one.origin == origin for one in members) for origin in ("kept", "moved", "copied", "new")
        }
        counts = ", ".join(f"{n} {origin}" for origin, n in by_origin.items() if n)
        yield f"norms on the stream: {len(members)} {kind}, epsilon {eps:g} ({counts})"
