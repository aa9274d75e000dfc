"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

N = TypeVar("N")


def json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the record as JSON on stdout, nothing else")


def framework_option(
    parser: argparse._ActionsContainer, default: str | None = "torch", also: Sequence[str] = (), words: str = ""
) -> None:
    """`--framework`; `also` are other choices, and `words` says what they are."""
    parser.add_argument("--framework", choices=("torch", "flax", *also), default=default, help=f"default torch{words}")


def rates(text: str) -> list[float]:
    """`3e-3`, or `1e-3:1e-2:3` for three rates from 1e-3 to 1e-2 at equal ratios."""
    parts = text.split(":")
    try:
        if len(parts) == 1:
            return [_positive(parts[0])]
        if len(parts) == 3:
            low, high, count = _positive(parts[0]), _positive(parts[1]), int(parts[2])
            if count >= 2 and low < high:
                ratio = (high / low) ** (1 / (count - 1))
                return [float(f"{low * ratio**i:.3g}") for i in range(count)]
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"a rate is a positive number such as 3e-3, or low:high:count such as 1e-3:1e-2:3, not {text!r}"
    )


def whole(least: int) -> Callable[[str], int]:
    """A whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"a whole number of at least {least} stands here, not {text!r}")
        return value

    return read


def positive(text: str) -> float:
    """A positive number."""
    try:
        return _positive(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a positive number stands here, not {text!r}") from None


def several(read: Callable[[str], N | list[N]]) -> Callable[[str], list[N]]:
    """Values with commas between them: `6,18`."""

    def values(text: str) -> list[N]:
        found: list[N] = []
        for part in text.split(","):
            value = read(part.strip())
            found += value if isinstance(value, list) else [value]
        return found

    return values


def flat(values: list[list[N]]) -> tuple[N, ...]:
    """The values of an option whose every word may be several."""
    return tuple(dict.fromkeys(value for several in values for value in several))


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value
