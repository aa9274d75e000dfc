"""A conversion shown in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding

from normula.record.conversion import Conversion


def print_conversion(conversion: Conversion, title: str, console: Console) -> None:
    """What was done, what is left and why, parameters, and how far apart the two models are."""

    def say(text: str, indent: int = 0) -> None:
        console.print(Padding(text, (0, 0, 0, indent)), highlight=False, markup=False)

    say(f"{title}: {conversion.name}")
    for line in conversion.done:
        say(line, 2)
    for line in conversion.left:
        say(f"left: {line}", 2)
    say(f"parameters: {conversion.added:+,}" if conversion.added else "parameters: as many as before", 2)
    if conversion.apart is None:
        say("not yet run", 2)
    else:
        where = "at random gains and biases, in float64"
        say(f"proved: {where}, outputs differ by {conversion.apart:.1g} of their size", 2)
