"""Graph to the one tree that stands for it: the canonical form.

Skip first, then branches in order; a sum that stands inside a larger one is written once; what is used
once is written in place; what is used more often gets a name, `x` where it takes the stream's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Final, TypeAlias

from normula.formula.graph import ONE, Atom, Graph, Node, Stream, Sum
from normula.formula.order import Order, Rank
from normula.formula.scalar import GainUse, Group, Scalar, Symbol, base, key, number, power
from normula.formula.spell import gain_parts, leading_minus, spell
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Tree, rebuilt
from normula.formula.words import NORMS, STREAM, SUBLAYERS

Value: TypeAlias = Atom | Sum
Terms: TypeAlias = list[tuple[Scalar, Value]]

_LETTERS: Final = {**dict.fromkeys(NORMS, "n"), **dict.fromkeys(SUBLAYERS, "b"), "stop": "v"}


def canonical(graph: Graph) -> Tree:
    """The canonical tree; its calls and gains keep the indices of the written ones."""
    return _Writer(graph).tree()


def renumbered(tree: Tree) -> tuple[Tree, dict[int, int]]:
    """The tree with its calls and gains counted anew, and the new index of each old one."""
    new: dict[int, int] = {}

    def change(part: Expr) -> Expr:
        if isinstance(part, Call | Gain) and part.index >= 0:
            return replace(part, index=new.setdefault(part.index, len(new)))
        return part

    return Tree(tuple(Assign(s.name, rebuilt(s.value, change)) for s in tree.statements)), new


class _Writer:
    """Decides what is folded, what is named and in which order it is written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = Order(graph)
        self.bodies: dict[Value, Terms] = {}
        self.sums = self._sums()
        self.plan = self._plan()
        self.named: dict[Value, str] = {}
        self.gain_names = self._shared_gains()

    # ---- folding

    def _sums(self) -> list[Sum]:
        """The distinct sums of several terms that some call or output reads, small ones first."""
        sums = {applied.argument for applied in self.graph.nodes} | set(self.graph.outputs.values())
        several = [total for total in sums if len(total.terms) > 1]
        return sorted(several, key=lambda total: (len(total.terms), self._sum_rank(total)))

    def _sum_rank(self, total: Sum) -> list[tuple[Rank, str]]:
        return sorted((self.order.rank(atom), self.order.scalar(c)) for atom, c in total.terms)

    def _terms(self, total: Sum) -> Terms:
        """A sum as terms, with the largest sums that it contains folded in."""
        left = total.coefficients
        folded: Terms = []
        for part in reversed(self.sums):
            if len(part.terms) < len(total.terms) and (factor := _factor(part, left)) is not None:
                folded.append((factor, part))
                for atom, _ in part.terms:
                    del left[atom]
        rest: Terms = [(c, atom) for atom, c in left.items()]
        return sorted(folded + rest, key=lambda term: (self._rank(term[1]), self.order.scalar(term[0])))

    def _rank(self, value: Value) -> tuple[Rank, ...]:
        """Where a value stands in a sum: a folded sum stands where its first term would."""
        if isinstance(value, Sum):
            return tuple(sorted(self.order.rank(atom) for atom, _ in value.terms))
        return (self.order.rank(value),)

    def _body(self, value: Value) -> Terms:
        """What a value reads directly."""
        if value not in self.bodies:
            if isinstance(value, Sum) and len(value.terms) > 1:
                self.bodies[value] = self._terms(value)
            elif isinstance(value, Node):
                self.bodies[value] = self._operand(self.graph.nodes[value.number].argument)
            else:
                self.bodies[value] = [] if isinstance(value, Stream) else self._operand(value)
        return self.bodies[value]

    def _operand(self, total: Sum) -> Terms:
        """A sum as one operand: itself where it has several terms, else its only term."""
        return [(ONE, total)] if len(total.terms) > 1 else [(c, atom) for atom, c in total.terms]

    # ---- what is written, in which order

    def _outputs(self) -> list[tuple[str, Value]]:
        """The new streams, x last; an output that is one atom with coefficient 1 is that atom."""
        named = []
        for name in sorted(self.graph.outputs, key=lambda name: (name == STREAM, name)):
            total = self.graph.outputs[name]
            terms = self._operand(total)
            named.append((name, terms[0][1] if len(terms) == 1 and terms[0][0] == ONE else total))
        return named

    def _plan(self) -> list[Value]:
        """The values with a statement of their own: the outputs, and all that is read more than once."""
        uses: dict[Value, int] = {}
        running: list[Value] = []

        def visit(value: Value) -> None:
            uses[value] = uses.get(value, 0) + 1
            if uses[value] == 1:
                for part in self._written(value):
                    visit(part)
                running.append(value)

        for _, value in self._outputs():
            visit(value)
        outputs = {value for _, value in self._outputs()}
        return [v for v in running if not isinstance(v, Stream) and (uses[v] > 1 or v in outputs)]

    def _written(self, value: Value) -> list[Value]:
        """The values that one reads, each as often as it is written: a factor that terms share may split a term."""
        return _split(self._body(value), self.order) if isinstance(value, Sum) else [v for _, v in self._body(value)]

    def _inline(self, value: Value) -> Iterator[tuple[Value, Terms]]:
        """The value and all that is written inside its statement, each with its body."""
        yield value, self._body(value)
        for _, part in self._body(value):
            if part not in self.plan:
                yield from self._inline(part)

    def _reads(self, value: Value) -> set[Value]:
        """The named values and streams that the statement of a value reads."""
        found: set[Value] = {value} if isinstance(value, Stream) else set()
        for _, body in () if isinstance(value, Stream) else self._inline(value):
            found |= {part for _, part in body if part in self.plan or isinstance(part, Stream)}
        return found

    def _shared_gains(self) -> dict[int, str]:
        """Names for the gains that stand in several places of the text."""
        counts: dict[int, int] = {}
        for value in self.plan:
            for inside, body in self._inline(value):
                scalars = self._written_gains(body) if isinstance(inside, Sum) else [c for c, _ in body]
                for scalar in scalars:
                    for use, times in _occurrences(scalar).items():
                        counts[use] = counts.get(use, 0) + times
        shared = sorted((i for i, n in counts.items() if n > 1), key=lambda i: (self.order.gains[i], i))
        taken = self._taken()
        return {index: _fresh("g", taken) for index in shared}

    def _written_gains(self, body: Terms) -> list[Scalar]:
        """The coefficients of a sum as they are written: a factor that terms share stands once."""
        plain, grouped = gain_parts(body, self.order.scalar)
        inside = [scalar for _, terms in grouped for scalar in self._written_gains(terms)]
        return [c for c, _ in plain] + [factor for factor, _ in grouped] + inside

    def _taken(self) -> set[str]:
        """Names that a temporary cannot have: streams, and free constants."""
        streams = {atom.name for total in self._all_sums() for atom, _ in total.terms if isinstance(atom, Stream)}
        symbols = {
            b.name for total in self._all_sums() for _, c in total.terms for b in c.bases if isinstance(b, Symbol)
        }
        return streams | set(self.graph.outputs) | symbols

    def _all_sums(self) -> list[Sum]:
        return [*(applied.argument for applied in self.graph.nodes), *self.graph.outputs.values()]

    # ---- statements

    def tree(self) -> Tree:
        statements = [Assign(name, self._gain(index)) for index, name in self.gain_names.items()]
        outputs = self._outputs()
        held: dict[str, Value] = {name: Stream(name) for name, _ in outputs}
        taken = self._taken() | set(self.gain_names.values())
        for place, value in enumerate(self.plan):
            later: set[Value] = set().union(*(self._reads(v) for v in self.plan[place + 1 :]), set())
            pending = {v for name, v in outputs if isinstance(v, Stream) and v.name != name}
            free = [name for name in held if held[name] not in later | pending | {v for n, v in outputs if n == name}]
            expr = self._expr(value)
            name = self._name(value, held, free, outputs, later, taken)
            if name in held:
                held[name] = value
            self.named[value] = name
            statements.append(Assign(name, expr))
        statements += self._copies(outputs, held, taken)
        if all(statement.name != STREAM for statement in statements):
            statements.append(Assign(STREAM, Name(STREAM)))
        return Tree(tuple(statements))

    def _name(
        self,
        value: Value,
        held: dict[str, Value],
        free: list[str],
        outputs: list[tuple[str, Value]],
        later: set[Value],
        taken: set[str],
    ) -> str:
        """An output's own name, `x` where the value takes the stream's place, else a fresh letter."""
        for name, output in outputs:
            if output == value and name in free:
                return name
        runs = any(self._word(inside) in SUBLAYERS for inside, _ in self._inline(value))
        takes_place = runs and held[STREAM] in self._reads(value) and all(output != value for _, output in outputs)
        if STREAM in free and takes_place:
            return STREAM
        live = {self.named[v] for v in later | {v for _, v in outputs} if v in self.named}
        return _fresh(_LETTERS.get(self._word(value), "h"), taken | live, claim=False)

    def _copies(self, outputs: list[tuple[str, Value]], held: dict[str, Value], taken: set[str]) -> list[Assign]:
        """Outputs that are another value under a second name; streams that change places go through a third."""
        moves = {name: self._place(value) for name, value in outputs if held[name] != value}
        statements = []
        while moves:
            ready = [name for name in moves if name not in {source for n, source in moves.items() if n != name}]
            name = ready[0] if ready else next(iter(moves))
            if not ready:
                spare = _fresh("v", taken)
                statements.append(Assign(spare, Name(name)))
                moves = {n: spare if source == name else source for n, source in moves.items()}
            statements.append(Assign(name, Name(moves.pop(name))))
        return statements

    def _place(self, value: Value) -> str:
        return value.name if isinstance(value, Stream) else self.named[value]

    def _word(self, value: Value) -> str:
        return self.graph.nodes[value.number].word if isinstance(value, Node) else ""

    # ---- expressions

    def _expr(self, value: Value) -> Expr:
        """The value written out."""
        if isinstance(value, Stream):
            return Name(value.name)
        if isinstance(value, Node):
            applied = self.graph.nodes[value.number]
            start = None if applied.start is None else spell(applied.start, self._gain_expr)
            return Call(applied.word, self._sum(self._body(value)), applied.inner, start, applied.index)
        return self._sum(self._body(value))

    def _operand_expr(self, value: Value) -> Expr:
        if value in self.named:
            return Name(self.named[value])
        return self._expr(value)

    def _sum(self, terms: Terms) -> Expr:
        """Terms joined by + and -; a gain that several of them share stands once, before a bracket."""
        plain, grouped = gain_parts(terms, self.order.scalar)
        pieces = [(c, self._operand_expr(value), self._rank(value)) for c, value in plain]
        for factor, inside in grouped:
            first = min(self._rank(value) for _, value in inside)
            pieces.append((factor, self._sum(inside), (*first, *first)))
        pieces.sort(key=lambda piece: piece[2])
        front = next((i for i, piece in enumerate(pieces) if not leading_minus(piece[0])), 0)
        pieces.insert(0, pieces.pop(front))
        result: Expr | None = None
        for factor, operand, _ in pieces:
            minus = leading_minus(factor) and result is not None
            term = self._times(-factor if minus else factor, operand)
            result = term if result is None else Binary("-" if minus else "+", result, term)
        assert result is not None
        return result

    def _times(self, factor: Scalar, operand: Expr) -> Expr:
        if factor == ONE:
            return operand
        if factor == number(-1):
            return Negative(operand)
        if not factor.gains and _is_divisor(factor):
            return Binary("/", operand, spell(power(factor, number(-1)), self._gain_expr))
        return Binary("*", spell(factor, self._gain_expr), operand)

    def _gain_expr(self, use: GainUse) -> Expr:
        return Name(self.gain_names[use.index]) if use.index in self.gain_names else self._gain(use.index)

    def _gain(self, index: int) -> Gain:
        gain = self.graph.gains[index]
        start = None if gain.start is None else spell(gain.start, self._gain_expr)
        return Gain(start, gain.channel, index)


def _split(body: Terms, order: Order) -> list[Value]:
    """The values of a sum as it is written, with learned factors that terms share before brackets."""
    plain, grouped = gain_parts(body, order.scalar)
    return [value for _, value in plain] + [value for _, inside in grouped for value in _split(inside, order)]


def _factor(part: Sum, left: dict[Atom, Scalar]) -> Scalar | None:
    """The number c such that c * part stands inside the terms that are left."""
    if any(atom not in left for atom, _ in part.terms):
        return None
    atom, divisor = min(part.terms, key=lambda term: len(term[1].terms))
    by = Scalar(frozenset([min(divisor.terms, key=lambda term: key(Scalar(frozenset([term]))))]))
    whole = [left[atom]] if len(divisor.terms) == 1 else [Scalar(frozenset([term])) for term in left[atom].terms]
    for candidate in (value / by for value in whole):
        if all(candidate * c == left[a] for a, c in part.terms):
            return candidate
    return None


def _occurrences(value: Scalar) -> dict[int, int]:
    """How often each gain is written in a scalar."""
    counts: dict[int, int] = {}
    for (_, powers), _ in value.terms:
        for one, _ in powers:
            for use in base(one).gains:
                counts[use.index] = counts.get(use.index, 0) + 1
    return counts


def _is_divisor(factor: Scalar) -> bool:
    """Whether to write v / sqrt(l) and not 1/sqrt(l) * v: a bare power below the line."""
    ((_, powers), c), *rest = factor.terms
    below = all(p < 0 and (p.denominator == 1 or p == Fraction(-1, 2)) for _, p in powers)
    # a sum to a power, or beside other factors, would be multiplied out
    plain = not any(isinstance(one, Group) and (p < -1 or len(powers) > 1) for one, p in powers)
    return not rest and c > 0 and c.numerator == 1 and below and bool(powers) and plain


def _fresh(letter: str, taken: set[str], claim: bool = True) -> str:
    name, count = letter, 1
    while name in taken:
        count += 1
        name = f"{letter}{count}"
    if claim:
        taken.add(name)
    return name
