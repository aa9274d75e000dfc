"""Which sublayer a piece of the graph is, by what it computes."""

from __future__ import annotations

from typing import Final

from normula.read.graph import Graph

_AROUND_SCORES: Final = frozenset(
    ("view", "gather", "add", "sub", "mul", "div", "neg", "pointwise", "join", "write", "compare")
)
_STRAIGHT: Final = frozenset(("cos", "sin", "abs", "sign", "floor", "ceil", "round", "reciprocal", "polar", "complex"))
"""Functions of one value that no MLP has between its products."""


def kind_of(graph: Graph, entry: int, nodes: tuple[int, ...]) -> str | None:
    """The word of the sublayer that these nodes are; None where they are none, or where it could be another.

    What an operator of somebody's own computes is not seen: only attention beside it is what it is.
    """
    inside = {entry, *nodes} | _beside(graph, entry, nodes)
    attention = _attention(graph, nodes, inside)
    if attention is not None:
        return attention
    if any(_is_unseen(graph, one) for one in nodes):
        return None
    products = [one for one in nodes if graph.is_product(one)]
    kinds = {graph.kind(one) for one in nodes}
    if "fft" in kinds and len(products) > 2:
        return "attn" if all(_is_read(graph, one, inside) for one in nodes if graph.kind(one) == "fft") else "cross"
    if products and "choose" in kinds and _routes(graph, nodes):
        return "moe"
    if "recurrence" in kinds or _recurs(graph, nodes, len(products)):
        return "ssm"
    if "fft" in kinds:
        return "fourier"
    data = [one for one in nodes if graph.is_data_product(one)]
    if len(products) >= 3 and len(data) >= 2:
        return _self_or_cross(graph, data, inside)
    if any(_is_spatial(graph, one) for one in products):
        return "mlp" if _is_mlp_with_windows(graph, entry, products) else "conv"
    if products:
        return "mlp"
    if "pool" in kinds or any(graph.kind(one) == "reduce" for one in nodes):
        return "pool"
    return None


def _beside(graph: Graph, entry: int, nodes: tuple[int, ...]) -> set[int]:
    """What else the nodes take that is made of the entry's elements: each side of attention may lay them out anew."""
    while graph.kind(entry) == "view":
        (entry,) = graph.inputs(entry)[:1]
    before, stack = set(nodes), list(nodes)
    while stack:
        makers = [one for one in graph.inputs(stack.pop()) if one > entry and one not in before]
        before.update(makers)
        stack += makers
    made = {entry}
    for one in sorted(before):
        if any(maker in made for maker in graph.inputs(one)):
            made.add(one)
    return made


def _is_unseen(graph: Graph, number: int) -> bool:
    """Whether an operator is not known; a further result of one that is, such as the places of a topk, is no step."""
    node = graph[number]
    return node.kind == "opaque" and not (
        len(node.inputs) == 1
        and graph.kind(node.inputs[0]) != "opaque"
        and node.attrs.get("name", "").rpartition(" ")[2].isdigit()
    )


def is_complete(graph: Graph, nodes: list[int]) -> bool:
    """Whether nodes make up a whole sublayer: attention, or two learned products with a nonlinearity between them."""
    if any(graph.kind(one) == "attention" or scores_of(graph, one) for one in nodes):
        return True
    products = [one for one in nodes if graph.is_product(one)]
    if len(products) < 2:
        return False
    first = products[0]
    after = {first}
    curved = set()
    for one in nodes:
        inputs = graph.inputs(one)
        if any(i in after for i in inputs):
            after.add(one)
            bent = _is_nonlinear(graph, one, after) or any(i in curved for i in inputs)
            if bent and graph.is_product(one):
                return True
            if bent:
                curved.add(one)
    return False


def _is_nonlinear(graph: Graph, number: int, flowing: set[int]) -> bool:
    node = graph[number]
    if node.kind == "mul":
        return all(one in flowing for one in node.inputs)
    return node.kind in ("softmax", "pow") or (node.kind == "pointwise" and node.attrs.get("name") not in _STRAIGHT)


def _attention(graph: Graph, nodes: tuple[int, ...], inside: set[int]) -> str | None:
    """Attention with a softmax over products of queries and keys; both from what is read, or keys from elsewhere."""
    found = None
    for one in sorted(nodes):
        node = graph[one]
        if node.kind == "attention":
            both = node.inputs[1] in inside
        elif products := scores_of(graph, one):
            both = any(all(side in inside for side in graph.inputs(product)[:2]) for product in products)
        else:
            continue
        if both:
            return "attn"
        found = "cross"
    return found


def scores_of(graph: Graph, number: int) -> list[int]:
    """The products of queries and keys that a softmax is taken of."""
    if graph.kind(number) != "softmax":
        return []
    found: list[int] = []
    stack, seen = [graph.inputs(number)[0]], set()
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        if graph.is_data_product(one):
            found.append(one)
        elif graph.kind(one) in _AROUND_SCORES and len(seen) < 200:
            stack += graph.inputs(one)
    return found


def queries_and_keys(graph: Graph, nodes: tuple[int, ...]) -> tuple[int, int] | None:
    """The two sides of the scores of an attention, where it has one product of scores."""
    for one in nodes:
        if graph.kind(one) == "attention":
            return graph.inputs(one)[0], graph.inputs(one)[1]
        if len(products := scores_of(graph, one)) == 1:
            return graph.inputs(products[0])[0], graph.inputs(products[0])[1]
    return None


def _is_read(graph: Graph, number: int, inside: set[int]) -> bool:
    """Whether all that flows into a Fourier transform's product comes from what is read."""
    return all(
        one in inside or graph.is_constant(one)
        for user in graph.users[number]
        for one in (graph.inputs(user) if graph.kind(user) == "mul" else ())
    )


def _self_or_cross(graph: Graph, products: list[int], inside: set[int]) -> str:
    crossing = products and not any(all(side in inside for side in graph.inputs(one)[:2]) for one in products)
    return "cross" if crossing else "attn"


def _routes(graph: Graph, nodes: tuple[int, ...]) -> bool:
    """Whether something is chosen by what a learned product gave: a router."""
    among = set(nodes)
    for one in nodes:
        if graph.kind(one) == "choose":
            stack, seen = list(graph.inputs(one)), set()
            while stack:
                before = stack.pop()
                if before in seen or before not in among:
                    continue
                seen.add(before)
                if graph.is_product(before):
                    return True
                stack += graph.inputs(before)
    return False


def _recurs(graph: Graph, nodes: tuple[int, ...], products: int) -> bool:
    """Whether a state decays by data: exponentials or cumulative sums of what flows, without a softmax."""
    names = {graph[one].attrs.get("name") for one in nodes if graph.kind(one) == "pointwise"}
    return ("exp" in names and products > 3) or any(graph.kind(one) == "scan" for one in nodes)


def _is_spatial(graph: Graph, number: int) -> bool:
    node = graph[number]
    return node.kind == "conv" and any(length > 1 for length in node.attrs["spatial"])


def _is_mlp_with_windows(graph: Graph, entry: int, products: list[int]) -> bool:
    """Whether convolutions only widen what an MLP sees: two full ones, or a depthwise one at the hidden width."""
    spatial = [one for one in products if _is_spatial(graph, one)]
    widths = [graph[graph.inputs(one)[1]].shape[0] for one in spatial]
    if all(graph[one].attrs["groups"] == 1 for one in spatial):
        return len(spatial) == len(products) == 2 and widths[0] > widths[1]
    linear = [one for one in products if graph.kind(one) == "matmul"]
    features = graph[entry].shape[-1] if graph[entry].shape else 1
    return len(linear) >= 2 and min(widths) >= 2 * features
