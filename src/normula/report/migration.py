"""A move of a trained model shown in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding

from normula.record.migration import Migrated
from normula.report.rewiring import say_stages

KINDS = {
    "path": "{move} updates on the way from the old formula to the new one",
    "distil": "{move} updates in which it learned what the old model says",
}
"""What each kind of move is called."""


def print_migration(found: Migrated, title: str, console: Console) -> None:
    """Before and after, how it was trained, and what became of the loss."""

    def say(text: str, indent: int = 0) -> None:
        console.print(Padding(text, (0, 0, 0, indent)), highlight=False, markup=False)

    say(f"{title} to {found.to}")
    say_stages(found.before, found.after, say)
    recipe = found.recipe
    plain = recipe.steps - found.move_steps
    say(f"{KINDS[found.kind].format(move=found.move_steps)}{f', then {plain} of plain training' if plain else ''}", 2)
    say(f"task {found.task}, rate {recipe.lr:g}, warmup {recipe.warmup}, batch {recipe.batch}, seed {recipe.seed}", 2)
    say("loss on what the task holds out, in nats", 2)
    for words, loss in (("the old model", found.old), ("loaded blindly", found.blind), ("moved", found.moved)):
        say(f"{words:<16}{loss:.3f}", 4)
    say(_judged(found), 2)


def _judged(found: Migrated) -> str:
    if found.recovered is None:
        return "loading blindly costs nothing here: either the formulas agree, or the old model has learned nothing"
    return f"{found.recovered:.0%} of what loading blindly costs is recovered"
