"""What a value of the stream is made of: streams, factors, norms and sublayers, with the nodes that they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stream:
    """A value of the stream, by its node."""

    node: int


@dataclass(frozen=True, slots=True)
class Scaled:
    """A value times a fixed number."""

    factor: float
    value: Expression


@dataclass(frozen=True, slots=True)
class Gained:
    """A value times a learned factor: the node of the factor, and of the product."""

    gain: int
    node: int
    value: Expression


@dataclass(frozen=True, slots=True)
class Normed:
    """A norm of a value."""

    norm: int
    value: Expression


@dataclass(frozen=True, slots=True)
class Stopped:
    """A value without its gradient."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Applied:
    """A sublayer.

    Attributes:
        kind: its word in the notation.
        ends: the nodes whose sum it gives, and their signs.
        entry: the node that it reads.
        nodes: what it is made of, without the entry.
        value: what it reads.
    """

    kind: str
    ends: tuple[int, ...]
    entry: int
    nodes: tuple[int, ...]
    value: Expression
    signs: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class Total:
    """A sum: its node, and its terms without constants."""

    node: int
    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """What is not understood: the node, and what was seen."""

    node: int
    seen: str


Expression: TypeAlias = Stream | Scaled | Gained | Normed | Stopped | Applied | Total | Unknown


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside one."""
    match expression:
        case (
            Scaled(value=value)
            | Gained(value=value)
            | Normed(value=value)
            | Stopped(value=value)
            | Applied(value=value)
        ):
            return (value,)
        case Total(terms=terms):
            return terms
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all inside it; what is inside comes first."""
    for part in parts(expression):
        yield from walk(part)
    yield expression


def with_parts(expression: Expression, inside: Sequence[Expression]) -> Expression:
    """The expression with others directly inside it."""
    match expression:
        case Scaled() | Gained() | Normed() | Stopped() | Applied():
            return replace(expression, value=inside[0])
        case Total():
            return replace(expression, terms=tuple(inside))
    return expression


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with `change` applied to every part, the inside first."""
    return change(with_parts(expression, [rebuilt(part, change) for part in parts(expression)]))


def streams(expression: Expression) -> tuple[int, ...]:
    """The stream values that an expression reads."""
    return tuple(dict.fromkeys(part.node for part in walk(expression) if isinstance(part, Stream)))
