"""What is wrong with a text, and where."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FormulaError(ValueError):
    """A text that is not a formula: the message carries the text with a caret under the column.

    Attributes:
        text: the text as it was read.
        column: where the fault is, counted from 0.
        reason: what must hold, what came, what to do.
    """

    def __init__(self, reason: str, *, text: str, column: int) -> None:
        self.reason, self.text, self.column = reason, text, min(max(column, 0), len(text))
        super().__init__(f"{reason}\n  {_excerpt(self.text, self.column)}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.reason, self.text, self.column)


class Fault(Exception):  # noqa: N818 - never leaves this room
    """A fault at a column, raised where the text is not at hand."""

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(reason)
        self.reason, self.column = reason, column


def nearest(word: str, valid: Iterable[str]) -> str:
    """`"; did you mean 'norm'?"` where a valid word is near, else an empty text."""
    close = get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _excerpt(text: str, column: int, width: int = 100) -> str:
    """The text around the column and, below, the caret; long texts are cut on both sides."""
    start = max(0, column - width // 2)
    head, tail = ("..." if start else ""), ("..." if len(text) > start + width else "")
    return f"{head}{text[start : start + width]}{tail}\n  {' ' * (len(head) + column - start)}^"


def _rebuild(reason: str, text: str, column: int) -> FormulaError:
    return FormulaError(reason, text=text, column=column)
