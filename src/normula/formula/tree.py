"""The written tree: what the text of a formula says, before any algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Number:
    """A number written in the text, kept exactly: `0.81` is 81/100."""

    value: Fraction
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """The stream, another stream, a value named earlier, a depth symbol or a free constant."""

    name: str
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negative:
    """`-value`."""

    value: Expr
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` with one of the five arithmetic operators."""

    op: Literal["+", "-", "*", "/", "**"]
    left: Expr
    right: Expr
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`word(argument, site=norm)`: a norm, a sublayer, `stop`, or a function of a number.

    `start` is what a norm's own gain starts at, `norm(x, gain=0)`; None for 1.

    `index` counts the calls with a module of their own (norms and sublayers) and the gains from 0, in
    the order in which they run; it is -1 for calls that hold nothing.
    """

    word: str
    argument: Expr
    inner: tuple[tuple[str, str], ...] = ()
    start: Expr | None = None
    index: int = field(default=-1, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Gain:
    """`gain(start)` or `gain(start, 'channel')`: a learned factor; `start` is None for bare `gain`."""

    start: Expr | None
    channel: bool = False
    index: int = field(default=-1, compare=False)
    column: int = field(default=0, compare=False)


Expr: TypeAlias = Number | Name | Negative | Binary | Call | Gain


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = value`; a bare last expression is an assignment to `x`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Tree:
    """The statements of a formula in the order in which they run."""

    statements: tuple[Assign, ...]


def parts(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside one, from left to right."""
    match expr:
        case Negative(value=value):
            return (value,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(argument=argument, start=start):
            return (argument,) if start is None else (argument, start)
        case Gain(start=start) if start is not None:
            return (start,)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all inside it, in running order: what is inside comes first."""
    for part in parts(expr):
        yield from walk(part)
    yield expr


def rebuilt(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every part, in running order."""
    match expr:
        case Negative(value=value):
            return change(replace(expr, value=rebuilt(value, change)))
        case Binary(left=left, right=right):
            left = rebuilt(left, change)
            return change(replace(expr, left=left, right=rebuilt(right, change)))
        case Call(argument=argument, start=start):
            argument = rebuilt(argument, change)
            return change(replace(expr, argument=argument, start=None if start is None else rebuilt(start, change)))
        case Gain(start=start) if start is not None:
            return change(replace(expr, start=rebuilt(start, change)))
    return change(expr)
