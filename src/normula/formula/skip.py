"""The derivative of the skip path: what a step does to a gradient while its sublayers are held constant.

Pre-LN 1; Post-LN J[norm](x + f(x)), where J[norm](v) is the Jacobian of the norm at v. A product of
Jacobians is read from right to left, as they multiply.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from normula.formula.graph import ONE, Builder
from normula.formula.scalar import Scalar, number
from normula.formula.spell import leading_minus, spell
from normula.formula.text import expression, is_number
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Tree, walk
from normula.formula.words import NORMS, STREAM

MAX_PATHS: Final = 64

Jacobians: TypeAlias = tuple[tuple[str, int], ...]
"""The norms on a path, each with its text and its index: two norms of the same value differ in their parameters."""
Paths: TypeAlias = dict[str, dict[Jacobians, Scalar]]
"""From each old stream: the Jacobians on a path, last one first, and the number in front of them."""


def skip(tree: Tree) -> str:
    """The derivative of each new stream with respect to each old one; only x where there is no other."""
    try:
        entries = derivative(tree)
    except _TooManyPathsError:
        return f"a sum of more than {MAX_PATHS} products"
    if set(entries) <= {(STREAM, STREAM)}:
        return entries.get((STREAM, STREAM), "0")
    return "; ".join(f"d{new}/d{old} = {text}" for (new, old), text in sorted(entries.items(), reverse=True))


def derivative(tree: Tree) -> dict[tuple[str, str], str]:
    """The entries that are not zero, as text, by (new stream, old stream)."""
    return _Derivative(tree).entries()


class _TooManyPathsError(Exception):
    """Every norm beside a skip may double the paths: written out, they would be without bound."""


class _Derivative:
    """Runs the statements over paths instead of vectors."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.scalars = Builder(tree)
        self.numbers: set[str] = set()
        self.gains: dict[int, Expr] = {}
        self.paths: dict[str, Paths] = {}
        self.streams: list[str] = [STREAM]

    def entries(self) -> dict[tuple[str, str], str]:
        for statement in self.tree.statements:
            expr = statement.value
            if is_number(expr, self.numbers):
                self.numbers.add(statement.name)
                if isinstance(expr, Gain):
                    self.gains[expr.index] = Name(statement.name)
                self.scalars.assign(statement)
            else:
                self.paths[statement.name] = self._paths(expr)
        found = {(new, old): self._text(paths) for new in self.streams for old, paths in self._name(new).items()}
        return {pair: text for pair, text in found.items() if text != "0"}

    def _name(self, name: str) -> Paths:
        if name not in self.paths:
            if name not in self.streams:
                self.streams.append(name)
            return {name: {(): ONE}}
        return self.paths[name]

    def _paths(self, expr: Expr) -> Paths:
        match expr:
            case Name(name=name):
                return self._name(name)
            case Negative(value=value):
                return _scaled(self._paths(value), number(-1))
            case Binary(op="*", left=left, right=right):
                factor, value = (left, right) if is_number(left, self.numbers) else (right, left)
                return _scaled(self._paths(value), self._number(factor))
            case Binary(op="/", left=left, right=right):
                return _scaled(self._paths(left), ONE / self._number(right))
            case Binary(op=op, left=left, right=right):
                first, second = self._paths(left), self._paths(right)
                return _added(first, _scaled(second, number(-1)) if op == "-" else second)
            case Call(word=word, argument=argument, index=index):
                inside = self._paths(argument)
                if word not in NORMS:
                    return {}
                own = (f"J[{word}]({expression(argument, self.numbers)})", index)
                return {
                    old: {(own, *kept, *norms): c for norms, (kept, c) in self._kept(paths).items()}
                    for old, paths in inside.items()
                }
        return {}

    def _kept(self, paths: dict[Jacobians, Scalar]) -> dict[Jacobians, tuple[Jacobians, Scalar]]:
        """A factor for each feature does not commute with a Jacobian and stays at its place; others go in front."""
        return {
            norms: (((self._factor(c, True), -1),), ONE) if any(use.channel for use in c.gains) else ((), c)
            for norms, c in paths.items()
        }

    def _factor(self, c: Scalar, bracketed: bool) -> str:
        text = expression(spell(c, lambda use: self.gains[use.index]), self.numbers)
        return f"({text})" if len(c.terms) > 1 and bracketed else text

    def _number(self, expr: Expr) -> Scalar:
        self.gains |= {part.index: part for part in walk(expr) if isinstance(part, Gain)}
        value = self.scalars.value(expr)
        assert isinstance(value, Scalar)
        return value

    def _text(self, paths: dict[Jacobians, Scalar]) -> str:
        pieces: list[str] = []
        for norms, c in sorted(paths.items()):
            if not c.terms:
                continue
            size = -c if leading_minus(c) else c
            sign = ("- " if pieces else "-") if leading_minus(c) else ("+ " if pieces else "")
            front = [] if size == ONE and norms else [self._factor(size, bool(norms))]
            pieces.append(sign + "*".join([*front, *(text for text, _ in norms)]))
        return " ".join(pieces) or "0"


def _scaled(paths: Paths, factor: Scalar) -> Paths:
    return {old: {norms: factor * c for norms, c in several.items()} for old, several in paths.items()}


def _added(first: Paths, second: Paths) -> Paths:
    total = {old: dict(several) for old, several in first.items()}
    for old, several in second.items():
        mine = total.setdefault(old, {})
        for norms, c in several.items():
            mine[norms] = mine[norms] + c if norms in mine else c
        if len(mine) > MAX_PATHS:
            raise _TooManyPathsError
    return total
