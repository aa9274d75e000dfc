"""A model that is understood: its streams as its own code runs them, and where they come into its modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from normula.framework import framework_of, room
from normula.read import framework_to_read
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.streams import analysed
from normula.record.nodes import NodeOperation
from normula.record.rewiring import Operation, Preserved
from normula.rewire.anatomy import Stack, anatomy
from normula.rewire.errors import RewireError
from normula.rewire.nodes import by_nodes, told_apart


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
        framework: torch or flax.
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
    framework: str = "torch"

    @property
    def sides(self) -> dict[str, int]:
        """How many layers an encoder and the decoder that attends to it have."""
        decoder = next((place for place, one in enumerate(self.stacks) if "cross" in one.layers[0].words), 0)
        if not decoder:
            return {}
        return {"Le": len(self.stacks[decoder - 1].layers), "Ld": len(self.stacks[decoder].layers)}

    def counted(self, operation: Operation) -> tuple[dict[str, int], dict[str, int]]:
        """The parameters that an operation adds and removes, each with its number of elements."""
        there = room(self.framework).rewire
        if self.framework == "flax":
            found = there.counted(self.model, self._by_nodes(operation), self.args, self.kwargs)
        else:
            found = there.counted(self.model, operation)
        return cast("tuple[dict[str, int], dict[str, int]]", found)

    def operated(self, operation: Operation) -> Any:
        """A copy of the model with an operation done to it, not yet proved.

        Raises:
            ValueError: norms that it needs cannot be made.
        """
        there = room(self.framework).rewire
        if self.framework == "flax":
            return there.operated(self.model, self._by_nodes(operation), self.args, self.kwargs)
        return there.operated(self.model, operation)

    def preserved(self, new: Any, operation: Operation) -> tuple[Preserved, float]:
        """What stays of the model in the new one, and by how much its outputs on the example change."""
        there = room(self.framework).rewire
        if self.framework == "flax":
            return cast("tuple[Preserved, float]", there.preserved(self.model, new, self.args, self.kwargs))
        return cast("tuple[Preserved, float]", there.preserved(self.model, new, operation, self.args, self.kwargs))

    def given_to(self, new: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example as the new model is called with it: one of JAX holds its weights itself."""
        if self.framework == "flax":
            return cast("tuple[tuple[Any, ...], dict[str, Any]]", new.arguments(self.args, self.kwargs))
        return self.args, dict(self.kwargs)

    def _by_nodes(self, operation: Operation) -> NodeOperation:
        return by_nodes(self.graph, self.stacks, operation)


def understood(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Understood:
    """What a rewiring must know of a model.

    Raises:
        RewireError: the model is none that can be rewired, or a part of it is not understood.
        Exception: whatever its forward raises.
    """
    framework = framework_to_read(model, (args, kwargs))
    if framework == "flax":
        return _of_jax(model, args, kwargs)
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


def check_torch(model: Any, what: str) -> None:
    """Only a module of PyTorch will do.

    Raises:
        RewireError: the model is none.
    """
    if framework_of(model) != "torch":
        raise RewireError(
            f"{what} needs a module of PyTorch. A model of JAX is rewired at once (nm.rewire) and trained on as a "
            "pytree of its weights."
        )


def _of_jax(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Understood:
    program = room("flax").capture(model, args, kwargs)
    graph, found = analysed(program)
    stacks = tuple(told_apart(stack) for stack in anatomy(graph, found))
    return Understood(
        model=model,
        args=tuple(args),
        kwargs=dict(kwargs),
        stacks=stacks,
        arguments={layer.path: ("", 0) for stack in stacks for layer in stack.layers},
        slots={},
        real=program.real,
        uncalled=program.uncalled,
        graph=graph,
        found=tuple(found),
        framework="flax",
    )
