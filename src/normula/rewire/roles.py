"""What each parameter of a model does, as far as a rule for initial weights depends on it.

Roles are found in what is computed: a matrix of a sublayer, the one that writes to the stream, a table that is looked
up, what stands before the first layer and after the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normula.formula import Placement
from normula.oracle.initial import RULES
from normula.read.expression import Applied
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.streams import events_of, sublayers_of
from normula.read.sublayers import queries_and_keys
from normula.record.rewiring import Initial
from normula.rewire.errors import RewireError
from normula.rewire.understood import Understood
from normula.spec.role import Role


def initials(model: Understood, rule: str, placement: Placement) -> tuple[Initial, ...]:
    """How each parameter starts that the rule speaks of.

    Args:
        model: as it was read.
        rule: a named rule, or `paper` for the placement's own.
        placement: the wanted one.

    Raises:
        RewireError: there is no such rule, or it has a factor on a matrix that is one with others.
    """
    if rule not in (*RULES, "paper"):
        raise RewireError(f"A rule for initial weights is one of {', '.join((*RULES, 'paper'))}, not {rule!r}.")
    factor, on = 1.0, tuple[str, ...]()
    if rule == "paper":
        if placement.initial is None:
            raise RewireError(f"{placement.name} has no rule of its own for initial weights; name one, such as xavier.")
        rule, on = placement.initial.rule, placement.initial.on
        depth = {"L": max(len(stack.layers) for stack in model.stacks), **model.sides}
        factor = placement.initial.factor_at(depth) if on else 1.0
    graph, found = model.graph, model.found
    total = max(sum(len(sublayers_of(event)) for event in events_of(one)) for one in found)
    matrices = _matrices(graph, found)
    result = []
    for name, role, transposed in _roles(graph, found):
        known = matrices.get(name, frozenset())
        if known & set(on) and not known <= set(on):
            raise RewireError(
                f"The rule multiplies {', '.join(sorted(known & set(on)))} by {factor:.3g}, and {name} is "
                f"{', '.join(sorted(known))} in one matrix. Name another rule, such as xavier."
            )
        scaled = factor if known & set(on) else 1.0
        result.append(Initial(name, role, rule, total, scaled, transposed))
    return tuple({one.name: one for one in reversed(result)}.values())


def _roles(graph: Graph, found: Sequence[ReadChain]) -> list[tuple[str, Role, bool]]:
    """The role of each parameter, and whether its matrix is held as (in, out)."""
    applied_parts = [part for one in found for event in events_of(one) for part in sublayers_of(event)]
    inside = {node: part for part in applied_parts for node in part.nodes}
    first = min(one.layers[0].layer.events[0].base for one in found)
    result: list[tuple[str, Role, bool]] = []
    for number in range(len(graph)):
        if not graph.alive[number]:
            continue
        node = graph[number]
        if node.kind == "lookup" and len(names := graph.parameters(node.inputs[0])) == 1:
            is_token = graph.given[node.inputs[1]]
            result.append((names[0], Role(kind="token_embedding" if is_token else "position_embedding"), False))
        if node.kind != "matmul" or not graph.is_product(number) or len(node.inputs) < 2:
            continue
        names = graph.parameters(node.inputs[1])
        if len(names) != 1:
            continue
        transposed = graph.kind(node.inputs[1]) == "parameter"
        width = graph[node.inputs[0]].shape[-1]
        applied = inside.get(number)
        if applied is not None:
            role = Role(kind="writer" if _writes(graph, applied, number) else "matrix")
        else:
            role = Role(kind="feature_embedding" if number < first else "head")
        result.append((names[0], role, transposed))
        if len(node.inputs) > 2 and len(bias := graph.parameters(node.inputs[2])) == 1:
            result.append((bias[0], Role(kind="bias", inputs=width), False))
    return result


def _writes(graph: Graph, applied: Applied, number: int) -> bool:
    """Whether no other product of its sublayer comes after one."""
    after = [node for node in applied.nodes if node > number and graph.is_mixing(node)]
    return not any(graph.between(number, node) for node in after)


def _matrices(graph: Graph, found: Sequence[ReadChain]) -> Mapping[str, frozenset[str]]:
    """What papers call the matrices of sublayers, by the name of the parameter: one may be several of them."""
    result: dict[str, set[str]] = {}
    for applied in (part for one in found for event in events_of(one) for part in sublayers_of(event)):
        for node in applied.nodes:
            if graph.kind(node) == "matmul" and graph.is_product(node) and len(graph.inputs(node)) > 1:
                for name in graph.parameters(graph.inputs(node)[1]):
                    result.setdefault(name, set()).update(_called(graph, applied, node))
    return {name: frozenset(words) for name, words in result.items()}


def _called(graph: Graph, applied: Applied, node: int) -> set[str]:
    writes = _writes(graph, applied, node)
    if applied.kind not in ("attn", "cross"):
        return {"down" if writes else "up"}
    if writes:
        return {"o"}
    sides = queries_and_keys(graph, applied.nodes)
    if sides is None:
        return {"q", "k", "v"}
    found = {word for word, side in zip("qk", sides, strict=True) if graph.between(node, side)}
    return found if found and not _is_value(graph, applied, node, sides) else found | {"v"}


def _is_value(graph: Graph, applied: Applied, node: int, sides: tuple[int, int]) -> bool:
    """Whether a product reaches the sublayer's end other than through queries and keys."""
    stack, seen = [node], {node, *sides}
    inside = set(applied.nodes)
    while stack:
        for user in graph.users[stack.pop()]:
            if user in applied.ends:
                return True
            if user in inside and user not in seen:
                seen.add(user)
                stack.append(user)
    return False
