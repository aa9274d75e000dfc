"""Tree to text, in the notation's own spelling."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Number, Tree, walk
from normula.formula.words import CONSTANTS, FUNCTIONS, STREAM, SUBLAYERS, SYMBOLS

_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
_NEGATIVE: Final = 3
"""How tightly an operator binds; what is negated binds at least this tightly."""


def unparse(tree: Tree) -> str:
    """The text of a tree; the last value is bare where a step says only what becomes of x."""
    numbers: set[str] = set()
    lines = []
    for statement in tree.statements:
        text = expression(statement.value, numbers)
        if is_number(statement.value, numbers):
            numbers.add(statement.name)
        lines.append(f"{statement.name} = {text}")
    if tree.statements[-1].name == STREAM and is_bare(tree):
        lines[-1] = lines[-1].removeprefix(f"{STREAM} = ")
    return "; ".join(lines)


def is_bare(tree: Tree) -> bool:
    """Whether the last value stands without `x =`: a step, or no sublayer at all, and no other stream changed."""
    named = {call.word for statement in tree.statements for call in calls(statement.value)} & set(SUBLAYERS)
    assigned: set[str] = set()
    read_first: set[str] = set()
    for statement in tree.statements:
        read_first |= names(statement.value) - assigned
        assigned.add(statement.name)
    others = (read_first & assigned) - {STREAM}
    return named <= {"f"} and not others


def expression(expr: Expr, numbers: set[str] | frozenset[str] = frozenset()) -> str:
    """The text of one expression; `numbers` are the names that stand for numbers."""
    return _text(expr, 0, numbers)


def is_number(expr: Expr, numbers: set[str] | frozenset[str] = frozenset()) -> bool:
    """Whether an expression is a number (with gains), not a vector."""
    match expr:
        case Number() | Gain():
            return True
        case Name(name=name):
            return name in SYMBOLS or name in numbers or name in CONSTANTS
        case Negative(value=value):
            return is_number(value, numbers)
        case Binary(left=left, right=right):
            return is_number(left, numbers) and is_number(right, numbers)
        case Call(word=word):
            return word in FUNCTIONS


def calls(expr: Expr) -> list[Call]:
    """All calls in an expression, in running order."""
    return [part for part in walk(expr) if isinstance(part, Call)]


def names(expr: Expr) -> set[str]:
    """All names that an expression reads."""
    return {part.name for part in walk(expr) if isinstance(part, Name)}


def decimal(value: Fraction) -> str:
    """A rational number as a decimal, in powers of ten where that is shorter."""
    if value.denominator == 1:
        return str(value.numerator)
    plain = f"{float(value):.15f}".rstrip("0")
    short = f"{float(value):.15g}".replace("e-0", "e-")
    return next(text for text in sorted({plain, short}, key=len) if Fraction(text) == value)


def _text(expr: Expr, outer: int, numbers: set[str] | frozenset[str]) -> str:
    """The text, in brackets where the surroundings bind tighter."""
    match expr:
        case Number(value=value):
            return decimal(value)
        case Name(name=name):
            return name
        case Gain(start=None):
            return "gain"
        case Gain(start=start, channel=channel):
            assert start is not None
            return f"gain({_text(start, 0, numbers)}{', ' + repr('channel') if channel else ''})"
        case Call(word=word, argument=argument, inner=inner, start=start):
            sites = "".join(f", {site}={norm}" for site, norm in inner)
            sites += "" if start is None else f", gain={_text(start, 0, numbers)}"
            return f"{word}({_text(argument, 0, numbers)}{sites})"
        case Negative(value=value):
            text = f"-{_text(value, _NEGATIVE, numbers)}"
            return f"({text})" if outer > _PRECEDENCE["*"] else text
        case Binary(op=op, left=left, right=right):
            own = _PRECEDENCE[op]
            tight = op == "**" or (op in "*/" and is_number(expr, numbers))
            gap = "" if tight else " "
            text = f"{_text(left, own + (op == '**'), numbers)}{gap}{op}{gap}{_text(right, own + 1, numbers)}"
            return f"({text})" if own < outer else text
