"""The matrices that write to an open stream: whether they start smaller with depth, as GPT-2's do.

Radford et al., Language Models are Unsupervised Multitask Learners, 2019, section 2.3: the weights of residual layers
are scaled at initialisation by 1/sqrt(N), with N residual layers. Two sublayers a layer make that 1/sqrt(2L).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from normula.read.expression import Applied, Total, walk
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.record.flow import Finding, WeightFlow

SHALLOWEST: Final = 4
"""Layers of a stream, at least: below, the rule changes little."""
SAME: Final = 1e-6
"""How far a norm's gain may be from 1 in a model that was not trained yet."""


def writer_findings(graph: Graph, chain: ReadChain, weights: Sequence[WeightFlow]) -> Iterator[Finding]:
    """A note where a model at its start has writers that are as large as its other matrices."""
    norms = {one.name: one.norm for one in weights}
    sizes = {name: node.size for _, node in graph.leaves() for name in node.attrs.get("names", ())}
    if len(chain.layers) < SHALLOWEST or not _is_untrained(graph, norms, sizes):
        return
    deviations = {name: norm / math.sqrt(sizes[name]) for name, norm in norms.items() if sizes.get(name)}
    ratios = [ratio for part in _open_branches(chain) if (ratio := _ratio(graph, part, deviations)) is not None]
    steps = len(ratios)
    if not steps:
        return
    ratio, rule = math.exp(sum(map(math.log, ratios)) / steps), 1 / math.sqrt(steps)
    if ratio > 2 * rule:
        yield Finding(
            kind="writers-not-scaled",
            weight="note",
            text=f"The matrices that write to the stream start with {ratio:.2f} of the deviation of the others in "
            f"their sublayers, which is not reduced with depth: GPT-2's rule for {steps} of them is 1/sqrt({steps}) = "
            f"{rule:.2f}. Without it the stream grows with depth.",
        )


def _is_untrained(graph: Graph, norms: Mapping[str, float], sizes: Mapping[str, int]) -> bool:
    """Whether all gains of norms are 1, as they are before the first update."""
    gains = {
        name
        for number, node in enumerate(graph.nodes)
        if graph.alive[number] and node.kind == "norm" and node.attrs["gain"] >= 0
        for name in graph.parameters(node.inputs[node.attrs["gain"]])
    }
    return bool(gains) and all(abs(norms.get(name, 0.0) / math.sqrt(sizes[name]) - 1) < SAME for name in gains)


def _open_branches(chain: ReadChain) -> Iterator[Applied]:
    """The sublayers whose output is added to the stream as it is."""
    for layer in chain.layers:
        for event in layer.layer.events:
            for part in walk(event.value):
                if isinstance(part, Total):
                    yield from (term for term in part.terms if isinstance(term, Applied))


def _ratio(graph: Graph, part: Applied, deviations: Mapping[str, float]) -> float | None:
    """The deviation of what a sublayer ends in, in that of its other matrices; None where one of them is not drawn."""
    products = [one for one in part.nodes if graph.is_product(one)]
    last = [one for one in products if not any(one in graph.behind(other, one) for other in products if other > one)]
    writers, readers = (
        [
            deviations[name]
            for one in products
            if (one in last) == is_writer
            for value in graph.inputs(one)
            if graph.is_weight(value) and len(graph[value].shape) > 1
            for name in graph.parameters(value)
            if name in deviations
        ]
        for is_writer in (True, False)
    )
    if not writers or not readers or not all(writers) or not all(readers):
        return None
    return (sum(writers) / len(writers)) / (sum(readers) / len(readers))
