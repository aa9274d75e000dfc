"""The residual stream: sums of a value that is carried with branches that were computed from it.

    y = c * carried(x) + branch(x)

where `carried` is nothing but layout, scaling, shifts by constants and norms, and every branch reads x through at
least one learned product, or a mixer. So neither a GELU written out (x + 0.0447 x**3), nor rotary positions
(q cos + rotated q sin), nor a mask added to scores, nor a sum of experts, nor a recurrence is one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from normula.read.graph import Graph
from normula.read.strip import step_down


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: a node, and the sign that it has."""

    node: int
    sign: float


@dataclass(slots=True)
class Residual:
    """A sum on a residual stream.

    Attributes:
        node: the sum.
        root: the value that is carried, and that the branches read.
        carried: the term that carries it.
        terms: all terms, of private sums inside too.
        inner: residual sums between the root and this one that only its branches read.
    """

    node: int
    root: int
    carried: Term
    terms: tuple[Term, ...]
    outer: int | None = None
    inner: list[int] = field(default_factory=list)


def terms_of(graph: Graph, number: int, whole: Set[int] = frozenset()) -> tuple[Term, ...]:
    """The terms of a sum; a sum inside that nothing else reads is written out, unless it is one of those left whole."""
    found: list[Term] = []

    def visit(node: int, sign: float, top: bool) -> None:
        one = graph[node]
        if node in whole and not top:
            found.append(Term(node, sign))
            return
        if one.kind == "view" and not top and len(graph.users[node]) == 1 and _leads_to_sum(graph, node):
            visit(one.inputs[0], sign, False)
            return
        if one.kind in ("add", "sub") and len(one.inputs) == 2 and (top or len(graph.users[node]) == 1):
            left, right = one.inputs
            visit(left, sign, False)
            visit(right, -sign if one.kind == "sub" else sign, False)
            return
        if (stacked := _stacked(graph, node)) and len(graph.users[node]) == 1:
            for part in stacked:
                visit(part, sign, False)
            return
        found.append(Term(node, sign))

    visit(number, 1.0, True)
    return tuple(found)


def _stacked(graph: Graph, node: int) -> tuple[int, ...]:
    """The values that are stacked and then summed: `stack([a, b]).sum(0)`."""
    one = graph[node]
    if one.kind != "reduce" or one.attrs["name"] != "sum" or graph.kind(one.inputs[0]) != "join":
        return ()
    parts = graph.inputs(one.inputs[0])
    return parts if all(graph[part].size == one.size for part in parts) else ()


def _leads_to_sum(graph: Graph, number: int) -> bool:
    """Whether a chain of layouts that nothing else reads ends in such a sum."""
    while (
        graph.kind(number) == "view"
        and len(graph.users[number]) == 1
        and graph[number].size == graph[graph.inputs(number)[0]].size
    ):
        number = graph.inputs(number)[0]
    summed = graph.kind(number) in ("add", "sub") or bool(_stacked(graph, number))
    return summed and len(graph.users[number]) == 1


def residuals(graph: Graph) -> tuple[dict[int, Residual], frozenset[int]]:
    """The residual sums, by node, in order; those inside the branch of another know it as `outer`.

    Also the sums that skip whole layers.
    """
    sums = sums_of(graph)
    chains = {node: [_chain(graph, term.node) for term in terms] for node, terms in sums.items()}
    wanted = [one for several in chains.values() for chain in several for one in chain if len(graph.users[one]) > 1]
    marks = {one: place for place, one in enumerate(dict.fromkeys([*wanted, *sums]))}
    reach, through = _reach(graph, marks)
    found: dict[int, Residual] = {}
    for node, terms in sums.items():
        best: Residual | None = None
        for place, term in enumerate(terms):
            others = 0
            for other, one in enumerate(terms):
                if other != place:
                    others |= through[one.node]
            root = next((one for one in chains[node][place] if one in marks and others >> marks[one] & 1), None)
            if root is not None and (best is None or _is_nearer(graph, root, best.root)):
                best = Residual(node, root, term, terms)
        if best is not None:
            found[node] = best
    nesting = _Nesting(marks, reach)
    dropped: set[int] = set()
    while True:
        nesting.tell(found)
        skips = _long_skips(graph, found)
        if not skips:
            return found, frozenset(dropped)
        for node in skips:
            del found[node]
        dropped |= {*skips}


def _is_nearer(graph: Graph, root: int, other: int) -> bool:
    """Whether of two values that a sum carries the first is the stream.

    It is the later one, unless that is made from the other by norms and layouts alone.
    """
    if root > other:
        return other not in _chain(graph, root)
    return root in _chain(graph, other)


def _long_skips(graph: Graph, found: dict[int, Residual]) -> list[int]:
    """Sums that skip whole layers, which are no steps of the stream.

    A group of layers may have a skip around it; a mask or a table is added in every layer and was read by those
    before; the model's input may be taken from its output. A sum around an inner stream of its own is not one.
    """
    carried = {one: _chain(graph, found[one].root) for one in found}
    continued = {below for chain in carried.values() for below in chain}
    skips = []
    for node, one in found.items():
        if not one.inner:
            continue
        first = next((other for other in sorted(one.inner) if one.root in _laid_out(graph, found[other].root)), None)
        around = first is not None and any(first in carried[other] for other in one.inner if other != first)
        chained = node in continued or any(below in found for below in carried[node])
        if around or not chained or graph.is_constant(one.root):
            skips.append(node)
    return skips


def _laid_out(graph: Graph, number: int) -> list[int]:
    """A value and those that it is another layout of."""
    found = [number]
    while (step := step_down(graph, number)) is not None and step.how in ("view", "shift"):
        number = step.below
        found.append(number)
    return found


def sums_of(graph: Graph, whole: Set[int] = frozenset()) -> dict[int, tuple[Term, ...]]:
    """The sums of two or more values, each with its terms; a sum inside another is not listed, unless left whole."""
    inside: set[int] = set()
    sums: dict[int, tuple[Term, ...]] = {}
    for number in range(len(graph) - 1, -1, -1):
        node = graph[number]
        if not graph.alive[number] or node.kind not in ("add", "sub") or number in inside or node.size <= 1:
            continue
        if not node.dtype.startswith(("float", "bfloat")):
            continue
        terms = terms_of(graph, number, whole)
        inside |= _inside(graph, number, terms)
        if len(terms) > 1 and sum(graph.number(term.node) is None for term in terms) > 1:
            sums[number] = terms
    return dict(sorted(sums.items()))


def _inside(graph: Graph, number: int, terms: tuple[Term, ...]) -> set[int]:
    """The sums between a sum and its terms."""
    ends = {term.node for term in terms}
    found: set[int] = set()
    stack = list(graph.inputs(number))
    while stack:
        one = stack.pop()
        if one not in ends and one not in found:
            found.add(one)
            several = graph.kind(one) in ("add", "sub", "join")
            stack += graph.inputs(one) if several else graph.inputs(one)[:1]
    return found


def _chain(graph: Graph, number: int) -> list[int]:
    """A value and those that it carries, nearest first."""
    chain = [number]
    while (step := step_down(graph, number)) is not None:
        number = step.below
        chain.append(number)
    return chain


def _reach(graph: Graph, marks: dict[int, int]) -> tuple[list[int], list[int]]:
    """For each node, as bits, the marked values that it depends on, and those that it reads through a sublayer."""
    reach: list[int] = []
    through: list[int] = []
    for number, node in enumerate(graph.nodes):
        near = far = 0
        for one in node.inputs:
            near |= reach[one]
            far |= through[one]
        if graph.is_mixing(number):
            far |= near
        if number in marks:
            near |= 1 << marks[number]
        reach.append(near)
        through.append(far)
    return reach, through


@dataclass(frozen=True, slots=True)
class _Nesting:
    """Which residual sums are inside a branch of another."""

    marks: dict[int, int]
    reach: list[int]

    def tell(self, found: dict[int, Residual]) -> None:
        """Tell each residual sum inside a branch which sum that is: the innermost."""
        for one in found.values():
            one.outer, one.inner = None, []
        order = list(found)
        for place, node in enumerate(order):
            one = found[node]
            branches = 0
            for term in one.terms:
                if term is not one.carried:
                    branches |= self.reach[term.node]
            for other in _before(order, place, one.root):
                inside = branches >> self.marks[other] & 1 and self.reach[other] >> self.marks[one.root] & 1
                if inside and found[other].outer is None:
                    found[other].outer = node
                    one.inner.append(other)


def _before(order: list[int], place: int, root: int) -> list[int]:
    """The residual sums between a root and the sum at a place, the last first."""
    found = []
    for other in reversed(order[:place]):
        if other <= root:
            break
        found.append(other)
    return found
