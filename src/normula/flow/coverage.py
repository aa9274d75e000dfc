"""Whether a measurement saw all that it should have: every norm and every sublayer that was read or declared.

A pass with gradients may compute something else than the one that was read, and a norm may be declared and do nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from normula.read.expression import Applied, walk
from normula.read.findings import unread_vectors
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.reading import parameter_names
from normula.record.flow import Finding
from normula.record.reading import Reading

NOT_SEEN: Final = "sites-not-seen"
"""The kind of the finding where something is missing."""
SHOWN: Final = 6
"""Names in a finding."""


def coverage(reading: Reading, graph: Graph, chains: Sequence[ReadChain]) -> Finding | None:
    """How many of the norms and sublayers that are expected the measured pass has, and which not; None for none."""
    nodes = [one for one, node in enumerate(graph.nodes) if graph.alive[one] and node.kind == "norm"]
    norms = Counter(parameter_names(graph, one) or (graph.path(one),) for one in nodes)
    wanted = Counter[tuple[str, ...]]()
    paths = dict[tuple[str, ...], str]()
    for norm in reading.norms:
        key = norm.parameters or (norm.path,)
        wanted[key] += norm.calls
        paths[key] = norm.path
    unread = [path for path in unread_vectors(graph) if path not in paths.values()]
    parts = [
        part
        for chain in chains
        for layer in chain.layers
        for event in layer.layer.events
        for part in walk(event.value)
        if isinstance(part, Applied)
    ]
    missing = [*(paths[key] for key in wanted - norms), *unread]
    seen = [((wanted & norms).total(), wanted.total() + len(unread), "norms")]
    seen.append((min(len(parts), len(reading.sublayers)), len(reading.sublayers), "sublayers"))
    if not any(expected for _, expected, _ in seen):
        return None
    text = "Seen: " + " and ".join(f"{found} of {expected} {word}" for found, expected, word in seen)
    if all(found == expected for found, expected, _ in seen) and not missing:
        return Finding(kind="coverage", weight="note", text=f"{text}.")
    names = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
    where = f": not {names}" if missing else ""
    return Finding(
        kind=NOT_SEEN,
        weight="warning",
        text=f"{text}{where}. What was not seen does nothing in this pass, or runs where it cannot be watched.",
    )
