"""Here live the contestants as a page shows them: each with a label, a colour and a marker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normula.record import Contestant
from normula.report.theme import MARKERS, SERIES

LONGEST = 14
"""Letters of a title that still fits beside a line on a phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A contestant and its looks.

    Attributes:
        label: its title, or a letter where the title is long or another has the same.
        colour, marker: the same on the whole page.
        around: what happens outside the layers, as pairs of a word and a formula.
    """

    contestant: Contestant
    label: str
    colour: str
    marker: str
    around: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """As records call it."""
        return self.contestant.name

    @property
    def title(self) -> str:
        """As people call it."""
        return self.contestant.title

    @property
    def formula(self) -> str:
        """The canonical text."""
        return str(self.contestant.placement.get("formula", self.name))


def shown(contestants: Sequence[Contestant]) -> list[Shown]:
    """All contestants, told apart by colour and by marker; a colour comes again only after all have been used."""
    titles = [one.title for one in contestants]
    return [
        Shown(
            contestant=one,
            label=one.title if len(one.title) <= LONGEST and titles.count(one.title) == 1 else _letter(place),
            colour=SERIES[place % len(SERIES)],
            marker=list(MARKERS)[(place + place // len(SERIES)) % len(MARKERS)],
            around=tuple(_around(one.placement)),
        )
        for place, one in enumerate(contestants)
    ]


def _letter(place: int) -> str:
    """A ... Z, then A1 ..."""
    letter = chr(ord("A") + place % 26)
    return letter if place < 26 else f"{letter}{place // 26}"


def _around(placement: dict[str, Any]) -> list[tuple[str, str]]:
    parts = [
        ("before the stack", str(placement.get("embed", "x"))),
        ("after the stack", str(placement.get("final", "x"))),
    ]
    streams = placement.get("streams")
    if isinstance(streams, dict):
        parts += [(f"stream {name} starts as", str(start)) for name, start in streams.items()]
    for part in placement.get("ranges") or ():
        parts.append((f"layers up to {part.get('until')}", str(part.get("formula"))))
    return parts
