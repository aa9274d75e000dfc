"""What a formula computes: every value as a sum of coefficients times atoms.

An atom is a stream as it enters, or one call of a norm, of a sublayer or of `stop`. Sums are multiplied
out, so that two texts that mean the same give the same graph, up to the order of its nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, TypeAlias, overload

from normula.formula.errors import Fault, nearest
from normula.formula.scalar import (
    ZERO,
    GainUse,
    Scalar,
    ScalarError,
    Symbol,
    base,
    function,
    number,
    power,
)
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Number, Tree
from normula.formula.words import CALLABLE, CONSTANTS, FUNCTIONS, STEP, STREAM, SUBLAYERS, SYMBOLS

MAX_SUM: Final = 64

ONE: Final = number(1)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as it enters the formula."""

    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """One call, by its number in `Graph.nodes`."""

    number: int


Atom: TypeAlias = Stream | Node


@dataclass(frozen=True, slots=True)
class Sum:
    """A vector: coefficients (none of them zero) times atoms."""

    terms: frozenset[tuple[Atom, Scalar]]

    @property
    def coefficients(self) -> dict[Atom, Scalar]:
        return dict(self.terms)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a node is: the word, its argument, inner norms and gain's start, and the index of the written call."""

    word: str
    argument: Sum
    inner: tuple[tuple[str, str], ...]
    start: Scalar | None
    index: int


@dataclass(frozen=True, slots=True)
class GainStart:
    """What a gain starts at (None: not stated) and whether it has one number for each feature."""

    start: Scalar | None
    channel: bool


@dataclass(slots=True)
class Graph:
    """What a formula computes: new values of the streams, the nodes in running order, the gains by index."""

    outputs: dict[str, Sum]
    nodes: list[Applied]
    gains: dict[int, GainStart]

    def reachable(self) -> tuple[set[int], set[GainUse]]:
        """Numbers of the nodes, and the gains, that the outputs depend on."""
        nodes: set[int] = set()
        gains: set[GainUse] = set()
        todo = list(self.outputs.values())
        while todo:
            for atom, coefficient in todo.pop().terms:
                gains |= coefficient.gains
                if isinstance(atom, Node) and atom.number not in nodes:
                    nodes.add(atom.number)
                    todo.append(self.nodes[atom.number].argument)
        return nodes, gains


def graph(tree: Tree) -> Graph:
    """The graph of a tree.

    Raises:
        Fault: the tree has no meaning (two vectors multiplied, a value that is never used, ...).
    """
    return Builder(tree).graph()


def _pruned(graph: Graph) -> Graph:
    """The graph without what its outputs do not depend on: a gain that cancels, a `stop` inside another."""
    nodes, gains = graph.reachable()
    places = {node: place for place, node in enumerate(sorted(nodes))}

    def moved(total: Sum) -> Sum:
        return Sum(
            frozenset((Node(places[atom.number]) if isinstance(atom, Node) else atom, c) for atom, c in total.terms)
        )

    kept = {use.index for use in gains}
    return Graph(
        {name: moved(total) for name, total in graph.outputs.items()},
        [replace(graph.nodes[node], argument=moved(graph.nodes[node].argument)) for node in places],
        {index: start for index, start in graph.gains.items() if index in kept},
    )


@dataclass(slots=True)
class _Named:
    value: Scalar | Sum
    column: int
    read: bool = field(default=False)


class Builder:
    """Runs the statements once, over sums instead of vectors."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.assigned = {statement.name for statement in tree.statements}
        self.names: dict[str, _Named] = {}
        self.streams: set[str] = set()
        self.nodes: list[Applied] = []
        self.columns: list[int] = []
        self.gains: dict[int, GainStart] = {}
        self.stops: dict[Sum, Sum] = {}
        self.steps = 0

    def graph(self) -> Graph:
        for statement in self.tree.statements:
            self.assign(statement)
        return self._checked()

    def assign(self, statement: Assign) -> None:
        value = self.value(statement.value)
        column = statement.value.column
        if statement.name == STREAM and isinstance(value, Scalar):
            raise Fault("the new x is a number, not a stream; it has to contain x", column)
        old = self.names.get(statement.name)
        if old and not old.read and statement.name not in self.streams and statement.name != STREAM:
            raise Fault(f"{statement.name!r} is named here and never used", old.column)
        self.names[statement.name] = _Named(value, column)

    def _checked(self) -> Graph:
        if STREAM not in self.names:
            last = self.tree.statements[-1].value.column
            raise Fault("the formula never says what x becomes; end it with the new x", last)
        outputs: dict[str, Sum] = {}
        for name, named in self.names.items():
            if isinstance(named.value, Sum) and (name == STREAM or name in self.streams):
                if not named.value.terms:
                    raise Fault(f"the new {name} is zero everywhere", named.column)
                outputs[name] = named.value
            elif not named.read:
                raise Fault(f"{name!r} is named here and never used", named.column)
        result = Graph(outputs, self.nodes, self.gains)
        for node in sorted(set(range(len(self.nodes))) - result.reachable()[0]):
            if self.nodes[node].word != "stop":
                raise Fault("this value never reaches the new x", self.columns[node])
        return _pruned(result)

    def value(self, expr: Expr) -> Scalar | Sum:
        try:
            return self._value(expr)
        except ScalarError as error:
            raise Fault(str(error), expr.column) from None

    def _value(self, expr: Expr) -> Scalar | Sum:
        match expr:
            case Number(value=value):
                return number(value)
            case Name():
                return self._name(expr)
            case Negative(value=inner):
                return _scaled(number(-1), self.value(inner))
            case Gain():
                return self._gain(expr)
            case Binary():
                return self._binary(expr)
            case Call():
                return self._call(expr)

    def _name(self, expr: Name) -> Scalar | Sum:
        name = expr.name
        if name in self.names:
            self.names[name].read = True
            return self.names[name].value
        if name in SYMBOLS or (name in CONSTANTS and name not in self.assigned):
            return base(Symbol(name))
        if name not in self.assigned and len(name) > 2 and nearest(name, (*CALLABLE, *self.assigned)):
            raise Fault(f"{name!r} has no value{nearest(name, (*self.assigned, *CALLABLE))}", expr.column)
        if name != STREAM:
            self.streams.add(name)
        return Sum(frozenset([(Stream(name), ONE)]))

    def _gain(self, expr: Gain) -> Scalar:
        start = self._start(expr.start)
        self.gains[expr.index] = GainStart(start, expr.channel)
        return base(GainUse(expr.index, expr.channel))

    def _start(self, expr: Expr | None) -> Scalar | None:
        """What a learned factor starts at."""
        if expr is None:
            return None
        start = self.value(expr)
        if isinstance(start, Sum) or start.gains:
            raise Fault("a gain starts at a number", expr.column)
        return start

    def _binary(self, expr: Binary) -> Scalar | Sum:
        left, right = self.value(expr.left), self.value(expr.right)
        match expr.op:
            case "+" | "-":
                right = right if expr.op == "+" else _scaled(number(-1), right)
                if isinstance(left, Scalar) and isinstance(right, Scalar):
                    return left + right
                if isinstance(left, Sum) and isinstance(right, Sum):
                    return _added(left, right, expr.column)
                raise Fault("a number and a vector cannot be added", expr.column)
            case "*":
                if isinstance(left, Scalar):
                    return _scaled(left, right)
                if isinstance(right, Scalar):
                    return _scaled(right, left)
                raise Fault("two vectors cannot be multiplied; one factor has to be a number or a gain", expr.column)
            case "/":
                if isinstance(right, Sum):
                    raise Fault("nothing can be divided by a vector", expr.right.column)
                return _scaled(power(right, number(-1)), left)
            case "**":
                if isinstance(left, Sum) or isinstance(right, Sum):
                    raise Fault("only numbers, depth symbols and gains have powers", expr.column)
                return power(left, right)

    def _call(self, expr: Call) -> Scalar | Sum:
        argument = self.value(expr.argument)
        if expr.word in FUNCTIONS:
            if isinstance(argument, Sum):
                raise Fault(f"{expr.word} takes a number, not a vector", expr.argument.column)
            return function(expr.word, argument)
        if isinstance(argument, Scalar):
            raise Fault(f"{expr.word} takes a vector such as x, not a number", expr.argument.column)
        if expr.word == "stop":
            return self._stop(argument, expr.column)
        if not argument.terms:
            raise Fault("this value is zero everywhere", expr.argument.column)
        self._count_step(expr)
        start = self._start(expr.start)
        start = None if start == ONE else start  # where a norm's gain starts by itself
        return self._node(Applied(expr.word, argument, expr.inner, start, expr.index), expr.column)

    def _stop(self, argument: Sum, column: int) -> Sum:
        """Stops term by term: stop(2*x + y) = 2*stop(x) + stop(y); a gain loses its gradient too and stays inside."""
        total = Sum(frozenset())
        for atom, coefficient in argument.terms:
            if isinstance(atom, Node) and self.nodes[atom.number].word == "stop":
                ((atom, before),) = self.nodes[atom.number].argument.terms
                coefficient = coefficient * before
            for inside, outside in _split_gains(coefficient):
                inner = Sum(frozenset([(atom, inside)]))
                if inner not in self.stops:
                    self.stops[inner] = self._node(Applied("stop", inner, (), None, -1), column)
                total = _added(total, _scaled(outside, self.stops[inner]), column)
        return total

    def _node(self, applied: Applied, column: int) -> Sum:
        self.nodes.append(applied)
        self.columns.append(column)
        return Sum(frozenset([(Node(len(self.nodes) - 1), ONE)]))

    def _count_step(self, expr: Call) -> None:
        if expr.word not in SUBLAYERS:
            return
        self.steps += expr.word == STEP
        if self.steps > 1:
            raise Fault("f stands for one sublayer and is called once; name its value to use it again", expr.column)
        others = [applied.word for applied in self.nodes if applied.word in SUBLAYERS]
        if self.steps and ((others and expr.word == STEP) or expr.word != STEP):
            raise Fault(
                "a formula describes one step with f, or a whole layer with named sublayers, not both", expr.column
            )


def _split_gains(coefficient: Scalar) -> list[tuple[Scalar, Scalar]]:
    """The products of gains in a coefficient, each with the fixed factor before it."""
    parts: dict[Scalar, Scalar] = {}
    for (radicals, powers), c in coefficient.terms:
        learned = frozenset((one, p) for one, p in powers if base(one).gains)
        inside = Scalar(frozenset([((frozenset(), learned), Fraction(1))]))
        outside = Scalar(frozenset([((radicals, powers - learned), c)]))
        parts[inside] = parts.get(inside, ZERO) + outside
    return list(parts.items())


@overload
def _scaled(factor: Scalar, value: Sum) -> Sum: ...
@overload
def _scaled(factor: Scalar, value: Scalar) -> Scalar: ...
@overload
def _scaled(factor: Scalar, value: Scalar | Sum) -> Scalar | Sum: ...
def _scaled(factor: Scalar, value: Scalar | Sum) -> Scalar | Sum:
    if isinstance(value, Scalar):
        return factor * value
    scaled = ((atom, factor * coefficient) for atom, coefficient in value.terms)
    return Sum(frozenset((atom, coefficient) for atom, coefficient in scaled if coefficient.terms))


def _added(left: Sum, right: Sum, column: int) -> Sum:
    total = left.coefficients
    for atom, coefficient in right.terms:
        total[atom] = total[atom] + coefficient if atom in total else coefficient
    if len(total) > MAX_SUM:
        raise Fault(f"a sum has at most {MAX_SUM} terms", column)
    return Sum(frozenset((atom, coefficient) for atom, coefficient in total.items() if coefficient.terms))
