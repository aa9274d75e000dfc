"""What a value is made of, from values of the stream: the graph between them, taken apart where everything passes.

Between a value of the stream and the end of a branch, some nodes lie on every way: single norms, factors and
products are read one by one there; what lies between two such nodes is one piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from normula.read.expression import (
    Applied,
    Expression,
    Gained,
    Normed,
    Scaled,
    Stopped,
    Stream,
    Total,
    Unknown,
    parts,
    rebuilt,
    walk,
)
from normula.read.graph import Graph
from normula.read.stream import Residual, Term, terms_of
from normula.read.strip import Step, step_down
from normula.read.sublayers import is_complete, kind_of, queries_and_keys

EARLIER: Final = "values of earlier layers, joined to those of this one"
FAR: Final = 24
"""How many values of the stream back a branch may read."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """From one node on every way to the next: its end, what is between, and the single step that it is, if any."""

    start: int
    end: int
    inside: tuple[int, ...]
    step: Step | None

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.inside, self.end)


class Branches:
    """Reads values as expressions.

    Args:
        graph: the program.
        known: the values of the stream, in order; expressions end there.
        sums: the residual sums of the program: one inside a sublayer that adds a whole sublayer is not understood.
        within: a sum that is being taken apart: what is made of its terms together is not read once more.
    """

    def __init__(self, graph: Graph, known: Sequence[int], sums: Mapping[int, Residual], within: int = -1) -> None:
        self.graph = graph
        self.sums = sums
        self.within = within
        self.known = list(known)
        self._set = set(known)

    def read(self, node: int) -> Expression:
        """What a value is made of."""
        if node in self._set:
            return Stream(node)
        step = step_down(self.graph, node)
        if step is not None and step.how != "batchnorm":
            return _stepped(node, step, self.read(step.below))
        if self.graph.kind(node) in ("add", "sub"):
            if node in self.sums and self.sums[node].outer is None and len(self.graph.users[node]) > 1:
                return Unknown(node, "another stream, added to this one")
            return self.sum(node, terms_of(self.graph, node, self._set))
        return self._sublayer((node,))

    def sum(self, node: int, terms: Sequence[Term]) -> Expression:
        """A sum of terms; those that share a product are one sublayer, and constants are left out."""
        flowing = [term for term in terms if not self.graph.is_constant(term.node) or self._carries(term.node)]
        read = [(term, self.read(term.node)) for term in flowing]
        groups: list[list[tuple[Term, Expression]]] = []
        for term, expression in read:
            joined = [group for group in groups if any(self._share(expression, other) for _, other in group)]
            groups = [group for group in groups if group not in joined]
            groups.append([one for group in joined for one in group] + [(term, expression)])
        together = [group for group in groups if len(group) > 1]
        if any(_reads_outside(expression) for group in together for _, expression in group):
            return Unknown(node, "terms that were computed together, one of them with the stream in it")
        if len(groups) == 1 and together:
            whole = node != self.within
            return self._sublayer((node,)) if whole else Unknown(node, "terms that were computed together")
        found: list[Expression] = []
        for group in groups:
            if len(group) > 1:
                if any(term.sign < 0 for term, _ in group):
                    return Unknown(node, "a difference of values that were computed together")
                found.append(self._sublayer(tuple(term.node for term, _ in group)))
            else:
                term, expression = group[0]
                found.append(expression if term.sign > 0 else Scaled(-1.0, expression))
        found = _merged_pools(_merged_experts(found))
        return found[0] if len(found) == 1 else Total(node, tuple(found))

    def _carries(self, node: int) -> bool:
        """Whether a term carries a value of the stream."""
        return any(self._leads_to(node, one) for one in self.known)

    def _leads_to(self, node: int, start: int) -> bool:
        """Whether a term carries a value."""
        while node > start:
            step = step_down(self.graph, node)
            if step is None:
                return False
            node = step.below
        return node == start

    def _share(self, one: Expression, other: Expression) -> bool:
        """Whether two terms are parts of one sublayer: they share a product, and not the whole."""
        return any(
            first != second and self._made_of(first) & self._made_of(second) and not self._split(first, second)
            for first in walk(one)
            if isinstance(first, Applied)
            for second in walk(other)
            if isinstance(second, Applied)
        )

    def _split(self, one: Applied, other: Applied) -> bool:
        """Whether all that two sublayers share is one projection of what both read, split between them."""
        shared = [node for node in one.nodes if node in other.nodes]
        products = [node for node in shared if self.graph.is_mixing(node)]
        return (
            one.entry == other.entry
            and len(products) == 1
            and all(self.graph.kind(node) == "view" for node in shared if node not in products)
        )

    def _made_of(self, applied: Applied) -> set[int]:
        """The products and mixers that a sublayer is computed with."""
        return {one for one in applied.nodes if self.graph.is_mixing(one) or self.graph.is_data_product(one)}

    # ---- sublayers

    def _sublayer(self, ends: tuple[int, ...]) -> Expression:
        """The expression that ends in a sublayer."""
        base = self._base(ends)
        if base is None:
            return Unknown(ends[0], "a value that was not computed from the stream")
        return self._series(base, ends)

    def _base(self, ends: tuple[int, ...]) -> int | None:
        """The last value of the stream that a value was computed from."""
        earlier = [one for one in self.known if one < min(ends)]
        for base in reversed(earlier[-FAR:]):
            if all(self.graph.between(base, end) for end in ends):
                return base
        return None

    def _series(self, base: int, ends: tuple[int, ...]) -> Expression:
        pieces = self._pieces(base, ends)
        current: Expression = Stream(base)
        gathered: list[_Piece] = []
        for place, piece in enumerate(pieces):
            if not gathered and not piece.inside and self.graph.kind(piece.end) == "join":
                if self._joins_earlier(piece.end, piece.start):
                    return Unknown(piece.end, EARLIER)
                continue  # joined with what is not of this stream
            if not gathered and piece.inside and self._is_padded(piece):
                continue
            if not gathered and piece.step is not None and piece.step.how != "batchnorm":
                current = _stepped(piece.end, piece.step, current)
                continue
            start = gathered[0].start if self._is_projection(gathered) else piece.start
            inner = self._inner_sum(piece, start)
            if inner is not None:
                current = self._closed(gathered, current) if start == piece.start else current
                gathered = []
                current = rebuilt(inner, lambda part: current if part == Stream(start) else part)  # noqa: B023
                continue
            if gathered and self._attends(piece) and self._convolves(gathered):
                current = self._closed(gathered, current)
                gathered = []
            if gathered and self._pools(piece, gathered):
                current = self._closed(gathered, current)
                gathered = []
            if gathered and self._divides(piece, gathered, pieces[place + 1 :]):
                current = Normed(piece.end, self._closed(gathered, current))
                gathered = []
                continue
            gathered.append(piece)
        return self._closed(gathered, current, ends)

    def _divides(self, piece: _Piece, before: Sequence[_Piece], after: Sequence[_Piece]) -> bool:
        """Whether a norm in a branch stands between two sublayers, not inside one."""
        if piece.step is None or piece.step.how != "norm":
            return False
        done = any(self.graph.is_mixing(one) for part in before for one in part.nodes)
        nodes = sorted(one for part in after for one in part.nodes)
        # what goes into the scores as it is are normed queries, inside attention
        first = next((one for one in nodes if self.graph.is_mixing(one) or self.graph.is_data_product(one)), None)
        scored = first is not None and (self.graph.is_data_product(first) or self.graph.kind(first) == "attention")
        return done and not scored and is_complete(self.graph, nodes)

    def _attends(self, piece: _Piece) -> bool:
        return any(self.graph.kind(one) in ("softmax", "attention") for one in piece.nodes)

    def _pools(self, piece: _Piece, gathered: Sequence[_Piece]) -> bool:
        """Whether what a linear map gave is pooled: two sublayers, where neither bends its values."""
        kind, attrs = self.graph.kind(piece.end), self.graph[piece.end].attrs
        pools = not piece.inside and (kind == "pool" or (kind == "reduce" and attrs["name"] in ("max", "mean")))
        nodes = [one for part in gathered for one in part.nodes]
        straight = all(self.graph.is_product(one) or self.graph.kind(one) in ("view", "add") for one in nodes)
        return pools and straight and any(self.graph.kind(one) == "matmul" for one in nodes)

    def _convolves(self, gathered: Sequence[_Piece]) -> bool:
        """Whether a convolution over tokens stands by itself before attention."""
        nodes = tuple(one for piece in gathered for one in piece.nodes)
        return kind_of(self.graph, gathered[0].start, nodes) == "conv"

    def _is_padded(self, piece: _Piece) -> bool:
        """Whether a piece is nothing but a layout, such as a sequence that is padded with its own ends."""
        node = piece.end
        while node > piece.start and (step := step_down(self.graph, node)) is not None and step.how == "view":
            node = step.below
        return node == piece.start

    def _is_projection(self, gathered: Sequence[_Piece]) -> bool:
        """Whether what was gathered is one product, in one for several branches."""
        nodes = [one for piece in gathered for one in piece.nodes]
        products = [one for one in nodes if self.graph.is_product(one)]
        return len(products) == 1 and all(one in products or self.graph.kind(one) in ("view", "add") for one in nodes)

    def _inner_sum(self, piece: _Piece, start: int) -> Expression | None:
        """A residual sum inside a branch: what is carried, with a whole sublayer added to it."""
        if self.graph.kind(piece.end) not in ("add", "sub") or not piece.inside or piece.end == self.within:
            return None
        terms = terms_of(self.graph, piece.end)
        carries = any(self._leads_to(term.node, piece.start) for term in terms)
        if not (carries or any(self.graph.kind(one) in ("softmax", "attention") for one in piece.inside)):
            return None
        if not is_complete(self.graph, list(piece.nodes)):
            return None
        inside = Branches(self.graph, [start], self.sums, piece.end)
        total = inside.sum(piece.end, terms)
        if not isinstance(total, Total) or any(isinstance(part, Unknown) for part in walk(total)):
            return None
        carried = [term for term in total.terms if not any(isinstance(part, Applied) for part in walk(term))]
        others = [term for term in total.terms if term not in carried]
        whole = all(self._is_whole(term) for term in others)
        narrow = any(self._is_attention(term) for term in others) and all(
            self._is_whole(term) or self._is_linear(term) for term in others
        )
        return total if (carried and whole) or narrow else None

    def _is_whole(self, expression: Expression) -> bool:
        last = next((part for part in reversed(list(walk(expression))) if isinstance(part, Applied)), None)
        if last is None or not any(self.graph.is_product(one) for one in last.nodes):
            return False
        return is_complete(self.graph, list(last.nodes)) and self._ends_in_product(last.ends)

    def _ends_in_product(self, ends: tuple[int, ...]) -> bool:
        for end in ends:
            while (step := step_down(self.graph, end)) is not None and step.how in (
                "view",
                "shift",
                "number",
                "batchnorm",
            ):
                end = step.below
            if not self.graph.is_product(end):
                return False
        return True

    def _is_attention(self, expression: Expression) -> bool:
        return any(isinstance(part, Applied) and part.kind in ("attn", "cross") for part in walk(expression))

    def _is_linear(self, expression: Expression) -> bool:
        applied = [part for part in walk(expression) if isinstance(part, Applied)]
        products = [one for part in applied for one in part.nodes if self.graph.is_mixing(one)]
        return len(applied) == 1 and len(products) == 1 and not self._is_attention(expression)

    def _closed(self, gathered: Sequence[_Piece], value: Expression, ends: tuple[int, ...] = ()) -> Expression:
        """The pieces that were gathered as one sublayer of a value."""
        if not gathered:
            return value
        entry = gathered[0].start
        nodes = tuple(one for piece in gathered for one in piece.nodes if one >= 0)
        ends = ends or (gathered[-1].end,)
        ways = {entry, *(piece.end for piece in gathered)}
        inner = next((one for one in ways - {*ends} if self._adds_whole(one, ways)), None)
        if inner is not None:
            return Unknown(inner, "a stream of its own inside a sublayer")
        if (passing := self._passing(entry, nodes, ends)) is not None:
            return Unknown(passing, "a value that is the stream's own on some tokens, and a sublayer's on others")
        if (statistic := self._statistic(entry, nodes)) is not None:
            return Unknown(statistic, "what a sublayer reads is divided by, or less, a statistic that is no norm's")
        if (seen := self._hidden_skip(entry, nodes, ends)) is not None:
            return seen
        if kind_of(self.graph, entry, nodes) == "attn" and self._projects_two(nodes):
            return Unknown(ends[0], "attention and another branch in one output projection")
        if (other := self._other_stream(entry, nodes)) is not None:
            return Unknown(other, "another stream, added inside a sublayer")
        kind = kind_of(self.graph, entry, nodes)
        if kind is None:
            return Unknown(ends[0], "a step that no sublayer takes")
        if kind == "attn" and (sides := queries_and_keys(self.graph, nodes)) is not None:
            entry, value = self._query_entry(entry, sides, value)
        return Applied(kind, ends, entry, nodes, value, (1.0,) * len(ends))

    def _adds_whole(self, node: int, ways: set[int]) -> bool:
        """Whether a node is a residual sum, on every way as its root is, that adds a whole sublayer."""
        one = self.sums.get(node)
        if one is None or one.root not in ways:
            return False
        for term in one.terms:
            if term is not one.carried and self._ends_in_product((term.node,)):
                way = self.graph.between(one.root, term.node)
                if way and is_complete(self.graph, way[1:]):
                    return True
        return False

    def _statistic(self, entry: int, nodes: tuple[int, ...]) -> int | None:
        """A statistic over the features of what a sublayer reads, before any product: a norm that is not known."""
        graph = self.graph
        for node in nodes:
            inputs = graph.inputs(node)
            if graph.kind(node) not in ("reduce", "softmax") or graph[inputs[0]].shape[-1] < 2:
                continue
            last = len(graph[inputs[0]].shape) - 1
            if tuple(graph[node].attrs.get("axes", (last,))) != (last,):
                continue
            way = graph.between(entry, node)
            if way and not any(graph.is_mixing(one) or graph.is_data_product(one) for one in way):
                return node
        return None

    def _passing(self, entry: int, nodes: tuple[int, ...], ends: tuple[int, ...]) -> int | None:
        """A join, at the end of a sublayer, of what it reads, as it is, with what it computes."""
        inside = {entry, *nodes}
        for end in ends:
            while (step := step_down(self.graph, end)) is not None and step.how in ("view", "number", "gain"):
                end = step.below
            if self.graph.kind(end) == "join":
                parts = [part for part in self.graph.inputs(end) if part in inside]
                plain = [part for part in parts if self._is_layout(part, entry)]
                # maps are joined along their features, sequences along their tokens
                if plain and len(plain) < len(parts) and len(self.graph[end].shape) < 4:
                    return end
        return None

    def _hidden_skip(self, entry: int, nodes: tuple[int, ...], ends: tuple[int, ...]) -> Unknown | None:
        """What no sublayer does: it gates the stream that it reads, or fills copies of it, or reads earlier layers."""
        for end in ends:
            top = self._top(end)
            if self.graph.kind(top) == "mul" and all(self._is_spread(one, top) for one in self.graph.inputs(top)):
                return Unknown(end, "a branch times factors made from the stream, for several copies of the stream")
            for term in terms_of(self.graph, top) if self.graph.kind(top) == "add" else ():
                factors = self.graph.inputs(term.node) if self.graph.kind(term.node) == "mul" else ()
                if any(self._is_layout(one, entry) for one in factors) and all(one >= entry for one in factors):
                    return Unknown(end, "a skip times a factor that is made from the stream")
        for node in nodes:
            if self.graph.kind(node) == "join" and self._joins_earlier(node, entry):
                return Unknown(node, EARLIER)
        return None

    def _joins_earlier(self, node: int, entry: int) -> bool:
        """Whether values that the stream had before what is read are laid beside it along an axis of their own."""
        rank = len(self.graph[node].shape)
        return any(self._is_earlier(part, entry, rank) for part in self.graph.inputs(node))

    def _top(self, node: int) -> int:
        """A value before it is laid out or scaled."""
        while (step := step_down(self.graph, node)) is not None and step.how in ("view", "number", "gain"):
            node = step.below
        return node

    def _is_spread(self, node: int, product: int) -> bool:
        """Whether a factor that flows is repeated in a product."""
        return not self.graph.is_constant(node) and self.graph[node].size < self.graph[product].size

    def _is_earlier(self, node: int, entry: int, rank: int) -> bool:
        """Whether a value is one of fewer axes that the stream had before what is read, whatever was joined to it."""
        if self.graph.kind(node) == "join":
            return any(self._is_earlier(part, entry, rank) for part in self.graph.inputs(node))
        while node not in self._set and self.graph.kind(node) in ("view", "gather"):
            node = self.graph.inputs(node)[0]
        return node in self._set and node < entry and len(self.graph[node].shape) < rank

    def _is_layout(self, node: int, start: int) -> bool:
        while node > start and self.graph.kind(node) in ("view", "gather"):
            node = self.graph.inputs(node)[0]
        return node == start

    def _projects_two(self, nodes: tuple[int, ...]) -> bool:
        """Whether the last product takes attention's result together with what did not go through attention."""
        node = next((one for one in reversed(nodes) if self.graph.is_product(one)), None)
        if node is None:
            return False
        node = self.graph.inputs(node)[0]
        while self.graph.kind(node) == "view":
            node = self.graph.inputs(node)[0]
        if self.graph.kind(node) != "join":
            return False
        attends = {one for one in nodes if self.graph.kind(one) in ("softmax", "attention")}
        through = [
            bool(attends & self.graph.behind(part, nodes[0])) for part in self.graph.inputs(node) if part in nodes
        ]
        return any(through) and not all(through)

    def _other_stream(self, entry: int, nodes: tuple[int, ...]) -> int | None:
        """A residual sum from elsewhere, or an earlier value of the stream, that is added inside a sublayer."""
        inside, streams = {entry, *nodes}, {*self.sums, *self._set}
        for one in nodes:
            if self.graph.kind(one) in ("add", "sub"):
                for side in self.graph.inputs(one):
                    while not (side in inside or side in streams) and (step := step_down(self.graph, side)):
                        side = step.below
                    if side not in inside and side in streams:
                        return side
        return None

    def _query_entry(self, entry: int, sides: tuple[int, int], value: Expression) -> tuple[int, Expression]:
        """What queries and keys are both projected from, where values are read from before that: a bottleneck."""
        if not all(self.graph.between(entry, side) for side in sides):
            return entry, value
        inside = Branches(self.graph, [entry], self.sums)
        for piece in reversed(self._pieces(entry, sides)[:-1]):
            if piece.step is not None and piece.step.how in ("norm", "gain"):
                found = inside.read(piece.end)
                if not any(isinstance(part, Unknown) for part in walk(found)):
                    return piece.end, rebuilt(found, lambda part: value if part == Stream(entry) else part)
        return entry, value

    def _pieces(self, base: int, ends: tuple[int, ...]) -> list[_Piece]:
        """The graph from a value of the stream to the ends of a branch, divided at the nodes on every way."""
        way = sorted(set().union(*(self.graph.between(base, end) for end in ends)))
        on_way = set(way)
        last: dict[int, int] = {}
        for number in way:
            for one in self.graph.inputs(number):
                if one in on_way:
                    last[one] = number
        if len(ends) > 1:
            for end in ends:
                last[end] = 1 << 60
        pieces: list[_Piece] = []
        start, reach = base, last.get(base, base)
        inside: list[int] = []
        for number in way[1:]:
            if reach <= number:
                step = None if inside else self._single(start, number)
                pieces.append(_Piece(start, number, tuple(inside), step))
                start, inside = number, []
            else:
                inside.append(number)
            reach = max(reach, last.get(number, number))
        if inside:
            pieces.append(_Piece(start, inside[-1], tuple(inside[:-1]), None))
        return pieces

    def _single(self, start: int, end: int) -> Step | None:
        step = step_down(self.graph, end)
        return step if step is not None and step.below == start else None


def _stepped(node: int, step: Step, value: Expression) -> Expression:
    match step.how:
        case "number":
            return Scaled(step.factor, value)
        case "gain":
            return Gained(step.node, node, value)
        case "norm":
            return Normed(node, value)
        case "stop":
            return Stopped(value)
        case "shift" if step.factor < 0:
            return Scaled(-1.0, value)
    return value


def _reads_outside(expression: Expression) -> bool:
    """Whether an expression has the stream in it other than through a sublayer."""
    if isinstance(expression, Applied):
        return False
    return isinstance(expression, Stream) or any(_reads_outside(part) for part in parts(expression))


def _merged_experts(terms: list[Expression]) -> list[Expression]:
    """Routed and shared experts that read the same value are one mixture of experts."""
    found: list[Expression] = []
    for term in terms:
        twin = next((place for place, other in enumerate(found) if _are_experts(term, other)), None)
        if twin is None:
            found.append(term)
        else:
            other = found[twin]
            assert isinstance(other, Applied)
            assert isinstance(term, Applied)
            nodes = tuple(sorted({*other.nodes, *term.nodes}))
            found[twin] = replace(
                other, kind="moe", ends=(*other.ends, *term.ends), nodes=nodes, signs=(*other.signs, *term.signs)
            )
    return found


def _are_experts(one: Expression, other: Expression) -> bool:
    if not isinstance(one, Applied) or not isinstance(other, Applied) or one.value != other.value:
        return False
    return {one.kind, other.kind} <= {"moe", "mlp"} and "moe" in (one.kind, other.kind)


def _merged_pools(terms: list[Expression]) -> list[Expression]:
    """A pooling mixer less what it reads is one mixer, as long as that is not the stream itself: pool(n) - n."""
    found = list(terms)
    for pool in terms:
        if isinstance(pool, Applied) and pool.kind == "pool" and isinstance(pool.value, Normed):
            less = Scaled(-1.0, pool.value)
            if less in found and pool in found:
                found[found.index(pool)] = replace(pool, ends=(*pool.ends, pool.entry), signs=(*pool.signs, -1.0))
                found.remove(less)
    return found
