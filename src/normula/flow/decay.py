"""Weight decay on what should keep its size: gains and biases of norms, and learned factors on a residual branch.

What a parameter is for is told from what it does in the program, never from its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from normula.read.expression import Gained, walk
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.record.flow import Decay, Finding

GAIN, BIAS, SCALE = "norm gain", "norm bias", "residual scale"
SHOWN: Final = 4
"""Names in a finding."""


def decay_of(graph: Graph, chains: Sequence[ReadChain], decays: Mapping[str, float]) -> tuple[Decay, ...]:
    """The weight decay of each gain and bias of a norm and of each learned factor in a formula, in their order."""
    roles = {name: role for name, role in _roles(graph, chains) if name in decays}
    return tuple(Decay(name=name, role=role, decay=decays[name]) for name, role in roles.items())


def _roles(graph: Graph, chains: Sequence[ReadChain]) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(graph.nodes):
        if graph.alive[number] and node.kind == "norm":
            for label, role in (("gain", GAIN), ("bias", BIAS)):
                if node.attrs[label] >= 0:
                    for name in graph.parameters(node.inputs[node.attrs[label]]):
                        yield name, role
    for chain in chains:
        for layer in chain.layers:
            for event in layer.layer.events:
                for part in walk(event.value):
                    if isinstance(part, Gained):
                        for name in graph.parameters(part.gain):
                            yield name, SCALE


def decay_findings(found: Sequence[Decay]) -> Iterator[Finding]:
    """What is decayed that should keep its size."""
    pulled = [one for one in found if one.decay]
    if pulled:
        counts = Counter(one.role for one in pulled)
        roles = ", ".join(f"{count} of the {role} kind" for role, count in counts.items())
        names = ", ".join(one.name for one in pulled[:SHOWN]) + (", ..." if len(pulled) > SHOWN else "")
        yield Finding(
            kind="norms-decayed",
            weight="warning",
            text=f"Weight decay of up to {max(one.decay for one in pulled):g} pulls towards 0 what should keep its "
            f"size, {roles}: {names}. Put them into a parameter group with weight_decay=0.",
        )
