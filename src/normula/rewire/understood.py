"""A model that is understood: its streams as its own code runs them, and where they come into its modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normula.framework import framework_of, room
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.streams import analysed
from normula.rewire.anatomy import Stack, anatomy
from normula.rewire.errors import RewireError


@dataclass(frozen=True, slots=True)
class Understood:
    """A model with what a rewiring must know of it.

    Attributes:
        model, args, kwargs: the model, and arguments of its forward.
        stacks: its streams.
        arguments: for the path of each module that runs layers, the argument that its stream comes in.
        slots: places for a closing norm that are empty, by the path of a stack's last layer.
        real: whether it holds values.
        uncalled: paths of norms that nothing calls.
        graph, found: what it was read from.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    stacks: tuple[Stack, ...]
    arguments: Mapping[str, tuple[str, int]]
    slots: Mapping[str, str]
    real: bool
    uncalled: tuple[str, ...]
    graph: Graph
    found: tuple[ReadChain, ...]

    @property
    def sides(self) -> dict[str, int]:
        """How many layers an encoder and the decoder that attends to it have."""
        decoder = next((place for place, one in enumerate(self.stacks) if "cross" in one.layers[0].words), 0)
        if not decoder:
            return {}
        return {"Le": len(self.stacks[decoder - 1].layers), "Ld": len(self.stacks[decoder].layers)}


def understood(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Understood:
    """What a rewiring must know of a model.

    Raises:
        RewireError: the model is none that can be rewired, or a part of it is not understood.
        Exception: whatever its forward raises.
    """
    if framework_of(model) != "torch":
        raise RewireError(
            "A model that is rewired is a module of PyTorch. A model of JAX that normula built is built again with "
            "another spec: nm.build(replace(spec, placement=...), 'linen'); other code of JAX holds no modules whose "
            "norms could be moved."
        )
    there = room("torch")
    try:
        there.rewire.check(model)
    except ValueError as error:
        raise RewireError(str(error)) from None
    program = there.capture(model, args, kwargs)
    graph, found = analysed(program)
    stacks = anatomy(graph, found)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for layer in (layer for stack in stacks for layer in stack.layers):
        shapes.setdefault(layer.path, []).append(layer.size)
    return Understood(
        model=model,
        args=tuple(args),
        kwargs=dict(kwargs),
        stacks=stacks,
        arguments=there.rewire.arguments(model, shapes, args, kwargs),
        slots=there.rewire.slots(model, [stack.layers[-1].path for stack in stacks]),
        real=program.real,
        uncalled=program.uncalled,
        graph=graph,
        found=tuple(found),
    )
