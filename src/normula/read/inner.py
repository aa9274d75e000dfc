"""Where a norm stands inside a sublayer: on queries and keys, on values, before the output projection, in the MLP.

`entry` is a norm of what the sublayer reads that not all of it goes through, such as one of the queries alone.
"""

from __future__ import annotations

from normula.read.expression import Applied
from normula.read.graph import Graph
from normula.read.sublayers import scores_of

_WORDS = {"mlp": "mid-mlp", "moe": "mid-moe", "conv": "mid-conv", "pool": "mid-pool", "fourier": "mid-fourier"}


def inner_norms(graph: Graph, applied: Applied) -> dict[int, str]:
    """The norms inside a sublayer, each with its site."""
    norms = [one for one in applied.nodes if graph.kind(one) == "norm"]
    return {one: _site(graph, applied, one) for one in norms}


def has_batchnorm(graph: Graph, applied: Applied) -> bool:
    """Whether a sublayer contains a batch norm."""
    return any(graph.kind(one) == "batchnorm" for one in applied.nodes)


def _site(graph: Graph, applied: Applied, norm: int) -> str:
    if applied.kind in _WORDS:
        return _WORDS[applied.kind]
    products, targets, weighted = _ahead(graph, applied, norm)
    if applied.kind == "ssm":
        return "ssm-out" if products <= 1 and not targets else "qk"
    if not targets:
        return "v" if weighted else "attn-out"
    if not any(graph.is_product(one) for one in graph.between(applied.entry, norm)):
        return "entry"
    return "qkv-latent" if products else "qk"


def _ahead(graph: Graph, applied: Applied, norm: int) -> tuple[int, bool, bool]:
    """The learned products that a norm passes before attention, or to the end.

    Also whether it goes into scores, as queries and keys do, and whether scores are its weights, as of values.
    """
    inside = set(applied.nodes)
    scores = {one for node in inside for one in scores_of(graph, node)}
    if not scores and applied.kind != "ssm":
        scores = {one for one in inside if graph.is_data_product(one)}
    meets = weighted = False
    products = set()
    direct = False
    stack, seen = [(norm, False)], {(norm, False)}
    while stack:
        node, passed = stack.pop()
        for user in graph.users[node]:
            if user not in inside:
                continue
            if graph.kind(user) == "attention" and node not in graph.inputs(user)[:2]:
                weighted = True
                continue
            if user in scores or graph.kind(user) == "attention":
                meets = True
                direct = direct or not passed
                continue
            weighted = weighted or graph.is_data_product(user)
            beyond = passed or graph.is_product(user)
            if graph.is_product(user):
                products.add(user)
            if (user, beyond) not in seen:
                seen.add((user, beyond))
                stack.append((user, beyond))
    return (0 if direct else len(products)), meets, weighted
