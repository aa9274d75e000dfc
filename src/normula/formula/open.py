"""Here lives Open: a step run in the open, so that what each statement adds to the stream, and to what, can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normula.formula.run import Runner
from normula.formula.text import calls, is_number, names
from normula.formula.tree import Binary, Call, Expr, Name, Negative, Tree
from normula.formula.words import NORMS, STREAM, SUBLAYERS

Terms = list[tuple[int, Expr]]


class Open(Runner):
    """A runner that remembers the value of every part, and shows each new x.

    Whoever uses it says what happens to a new x (`kept`) and what is done with a point of the stream (`point`).
    """

    def kept(self, x: Any) -> Any:
        """A new value of the stream, as it goes on."""
        return x

    def point(self, place: int, before: Any, after: Any, branch: Any, skip: Any) -> None:
        """One statement that made a new x.

        Args:
            place: number of the statement, from 1.
            before, after: the stream.
            branch: the sum of the terms that a sublayer made, None where there is none.
            skip: the sum of the other terms, None where there is none.
        """
        raise NotImplementedError

    def value(self, expr: Expr, names: Mapping[str, Any]) -> Any:
        """One expression, computed once."""
        if id(expr) not in self.known:
            self.known[id(expr)] = super().value(expr, names)
        return self.known[id(expr)]

    def total(self, terms: Terms, held: Mapping[str, Any]) -> Any:
        """The sum of some terms, from values that are already known."""
        values = [sign * self.value(term, held) for sign, term in terms]
        return sum(values[1:], values[0]) if values else None

    def statements(self, tree: Tree, streams: Mapping[str, Any]) -> dict[str, Any]:
        """The streams after the step; each new x that comes of a sublayer is a point."""
        self.known: dict[int, Any] = {}
        shown = points(tree)
        held = dict(streams)
        branches: set[str] = set()
        numbers: set[str] = set()
        for place, statement in enumerate(tree.statements, start=1):
            value = self.value(statement.value, held)
            if is_number(statement.value, numbers):
                numbers.add(statement.name)
            elif place in shown:
                value = self.kept(value)
                added, carried = _split(_inside_norms(statement.value, numbers), branches)
                self.point(place, held[STREAM], value, self.total(added, held), self.total(carried, held))
            elif statement.name not in streams and _has_sublayer(statement.value, branches):
                branches.add(statement.name)
            held[statement.name] = value
        return {name: held[name] for name in streams}


def points(tree: Tree) -> tuple[int, ...]:
    """The places of the statements that make a new x, from 1; none where no sublayer runs."""
    runs_sublayers = any(call.word in SUBLAYERS for one in tree.statements for call in calls(one.value))
    places = [place for place, one in enumerate(tree.statements, start=1) if one.name == STREAM]
    return tuple(places) if runs_sublayers else ()


def closing_norm(tree: Tree) -> Call | None:
    """The norm that the last value of x comes out of, if there is one."""
    last = next((one.value for one in reversed(tree.statements) if one.name == STREAM), None)
    return last if isinstance(last, Call) and last.word in NORMS else None


def changes_stream(tree: Tree) -> bool:
    """Whether a step does anything to x."""
    return tree.statements[-1].value != Name(STREAM)


def _has_sublayer(expr: Expr, branches: set[str]) -> bool:
    return any(call.word in SUBLAYERS for call in calls(expr)) or bool(names(expr) & branches)


def _inside_norms(expr: Expr, numbers: set[str]) -> Expr:
    """The sum under the norms and factors that lie on the whole of it."""
    match expr:
        case Call(word=word, argument=argument) if word in NORMS:
            return _inside_norms(argument, numbers)
        case Binary(op="*", left=left, right=right) if is_number(left, numbers):
            return _inside_norms(right, numbers)
        case Binary(op="/", left=left):
            return _inside_norms(left, numbers)
    return expr


def _split(expr: Expr, branches: set[str], sign: int = 1) -> tuple[Terms, Terms]:
    """The terms of a sum with a sublayer in them, and those without."""
    match expr:
        case Binary(op="+" | "-" as op, left=left, right=right):
            first = _split(left, branches, sign)
            second = _split(right, branches, sign if op == "+" else -sign)
            return first[0] + second[0], first[1] + second[1]
        case Negative(value=value):
            return _split(value, branches, -sign)
    term: Terms = [(sign, expr)]
    return (term, []) if _has_sublayer(expr, branches) else ([], term)
