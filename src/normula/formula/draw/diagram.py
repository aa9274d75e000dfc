"""Here lives the diagram of a formula: its boxes, and what feeds each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from normula.formula.text import expression, is_number, names
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Number, Tree, rebuilt, walk
from normula.formula.words import NORMS, STREAM, SUBLAYERS

Kind: TypeAlias = Literal["in", "out", "norm", "sublayer", "stop", "sum", "factor", "gain", "bend"]


@dataclass(frozen=True, slots=True)
class Feed:
    """What enters a box: the output of another one, by its number; subtracted where `minus`."""

    source: int
    minus: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One box of a drawing.

    Attributes:
        kind: `gain` is a factor with something learned in it; `bend` is a mere corner of a wire.
        lines: what is written in it; for the two ends of a stream its name.
        feeds: what enters it; two for a sum.
        indices: the calls and gains of the formula that it shows.
    """

    kind: Kind
    lines: tuple[str, ...] = ()
    feeds: tuple[Feed, ...] = ()
    indices: tuple[int, ...] = ()


def diagram(tree: Tree) -> tuple[Node, ...]:
    """The boxes of a tree; each comes after those that feed it, so its number is its place here."""
    return _Builder(tree).nodes()


class _Builder:
    """Runs the statements over numbers of boxes instead of vectors."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.found: list[Node] = []
        self.starts: dict[str, int] = {}
        self.values: dict[str, int] = {}
        self.numbers: dict[str, Expr] = {}
        self.told: set[int] = set()

    def nodes(self) -> tuple[Node, ...]:
        for statement in self.tree.statements:
            if self._is_number(statement.value):
                self.numbers[statement.name] = statement.value
            else:
                self.values[statement.name] = self._value(statement.value)
        if not self.values:  # the identity
            self.values[STREAM] = self._value(Name(STREAM))
        for name, value in self.values.items():
            if name in self.starts or name == STREAM:
                self._add(Node("out", (f"{name}'",), (Feed(value),)))
        return tuple(self.found)

    def _add(self, node: Node) -> int:
        self.found.append(node)
        return len(self.found) - 1

    def _is_number(self, expr: Expr) -> bool:
        """As `text.is_number`; but `a` and `b` are constants only where nothing else is called so."""
        return is_number(expr, self.numbers.keys() | set()) and not names(expr) & self.values.keys()

    def _value(self, expr: Expr) -> int:
        match expr:
            case Name(name=name):
                return self.values[name] if name in self.values else self._start(name)
            case Negative(value=value):
                return self._scaled(value, Number(Fraction(-1)))
            case Binary(op="*", left=left, right=right):
                factor, value = (left, right) if self._is_number(left) else (right, left)
                return self._scaled(value, factor)
            case Binary(op="/", left=left, right=right):
                return self._scaled(left, Binary("/", Number(Fraction(1)), right))
            case Binary(op=op, left=left, right=right):
                return self._add(Node("sum", (), (self._feed(left), self._feed(right, minus=op == "-"))))
            case Call(word=word, argument=argument, inner=inner, index=index):
                feed = Feed(self._value(argument))
                kind: Kind = "norm" if word in NORMS else "sublayer" if word in SUBLAYERS else "stop"
                lines = (word, *(f"{site}={norm}" for site, norm in inner))
                return self._add(Node(kind, lines, (feed,), (index,) if index >= 0 else ()))
        raise AssertionError(f"{expression(expr)} is a number")

    def _start(self, name: str) -> int:
        if name not in self.starts:
            self.starts[name] = self._add(Node("in", (name,)))
        return self.starts[name]

    def _feed(self, expr: Expr, minus: bool = False) -> Feed:
        if isinstance(expr, Negative):
            return self._feed(expr.value, not minus)
        return Feed(self._value(expr), minus)

    def _scaled(self, value: Expr, factor: Expr) -> int:
        feed = Feed(self._value(value))
        shared = [name for name in self.numbers if name in names(factor)]
        learned = [part for part in walk(factor) if isinstance(part, Gain)]
        kind: Kind = "gain" if learned or shared else "factor"
        text = expression(_plain(factor), self.numbers.keys() | set())
        lines = [f"× ({text})" if isinstance(factor, Binary) and factor.op in "+-" else f"× {text}"]
        for name in shared:  # a gain of several places is told at the first of them
            definition = [part for part in walk(self.numbers[name]) if isinstance(part, Gain)]
            new = [part for part in definition if part.index not in self.told]
            learned += new
            if new:
                lines.append(f"{name} = {expression(_plain(self.numbers[name]))}")
        if any(part.channel for part in learned):
            lines.append("per channel")
        self.told |= {part.index for part in learned}
        return self._add(Node(kind, tuple(lines), (feed,), tuple(part.index for part in learned)))


def _plain(factor: Expr) -> Expr:
    """The factor with `'channel'` left out where all its gains say so; a line of its own says it then."""
    gains = [part for part in walk(factor) if isinstance(part, Gain)]
    if not all(gain.channel for gain in gains):
        return factor
    return rebuilt(factor, lambda part: replace(part, channel=False) if isinstance(part, Gain) else part)
