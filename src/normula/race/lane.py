"""Here lives Lane: one contestant of a race, a placement and what it has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normula.catalog import placement
from normula.formula import Formula, Placement
from normula.formula.errors import nearest

SETTINGS = ("final", "embed", "init", "lr")
"""What a contestant may have of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One contestant.

        >>> str(Lane.of("post, final=norm(x)"))
        'post, final=norm(x)'

    Args:
        placement: a placement.
        final, embed, init: in place of the placement's and the race's; None for those.
        lr: a rate of its own; None for the race's rates.
        name: what it is called.
    """

    placement: Placement
    name: str
    final: str | None = None
    embed: str | None = None
    init: str | None = None
    lr: float | None = None

    @classmethod
    def of(cls, what: Lane | Placement | Formula | str) -> Lane:
        """A contestant from a placement, or from a text: a name or a formula, then settings after commas.

        Raises:
            ValueError: a placement or a setting that cannot be.
        """
        if isinstance(what, Lane):
            return what
        if not isinstance(what, str):
            found = placement(what)
            return cls(placement=found, name=found.name)
        text, settings = _split(what)
        found = placement(text)
        own = {key: value if key in ("init", "lr") else str(Formula(value)) for key, value in settings.items()}
        values: dict[str, Any] = dict(own)
        if "lr" in values:
            values["lr"] = _rate(values["lr"])
        name = ", ".join([found.name, *(f"{key}={value}" for key, value in own.items())])
        return cls(placement=found, name=name, **values)

    def __str__(self) -> str:
        return self.name


def top_level(text: str) -> list[str]:
    """What stands between commas; a formula has commas inside parentheses only."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()]


def _split(text: str) -> tuple[str, dict[str, str]]:
    """The placement, and the settings that follow it."""
    parts = top_level(text)
    settings: dict[str, str] = {}
    for part in parts[1:]:
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or key not in SETTINGS or not value or key in settings:
            raise ValueError(
                f"after a placement come settings such as final=x, each once, of {', '.join(SETTINGS)}; "
                f"not {part!r}{nearest(key, SETTINGS)}"
            )
        settings[key] = value
    return parts[0], settings


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a learning rate is a number, not {text!r}") from None
