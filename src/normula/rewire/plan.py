"""Here lives `plan`: all that a rewiring would change, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from normula.catalog import placement as named
from normula.formula import Formula, Placement
from normula.record.rewiring import Change, Parameters, Plan
from normula.rewire.anatomy import Stack
from normula.rewire.operation import Drawn, draw
from normula.rewire.understood import Understood, understood
from normula.rewire.wanted import Wanted, check

Example: TypeAlias = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, with the layers as they are to be."""

    plan: Plan
    placement: Placement
    layers: tuple[tuple[Wanted, ...], ...]


def plan(model: Any, to: str | Formula | Placement, *, example: Example) -> Plan:
    """What `rewire` would do; the model may be on the meta device.

    Args:
        model: as `rewire` takes it.
        to: the wanted placement, by name, formula or as a `Placement`.
        example: arguments of its forward, a tuple or a dictionary.

    Raises:
        RewireError: it cannot be done; the message says what stops it.
        ValueError: there is no such placement.

    Example:
        >>> import torch
        >>> stack = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        >>> plan(stack, "pre", example=(torch.randn(1, 3, 8),)).added.names
        ('norm.weight', 'norm.bias')
    """
    args, kwargs = given(example)
    return planned(understood(model, args, kwargs), named(to)).plan


def given(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a forward, by place and by name.

    Raises:
        ValueError: they are neither a tuple nor a dictionary.
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple | list):
        return tuple(example), {}
    raise ValueError(
        f"An example is a tuple of arguments of the model's forward, or a dictionary of them, not a "
        f"{type(example).__name__}. Pass example=(x,) or example={{'input_ids': ids}}."
    )


def planned(model: Understood, placement: Placement) -> Planned:
    """The plan for a model that is understood.

    Raises:
        RewireError: it cannot be done.
    """
    check(placement)
    drawn = Drawn(argument=model.arguments, slot=model.slots, in_pass=model.framework == "flax")
    layers = tuple(draw(drawn, placement, stack, model.sides) for stack in model.stacks)
    operation = drawn.finished()
    added, removed = model.counted(operation)
    return Planned(
        Plan(
            to=placement.name,
            before=tuple(line for stack in model.stacks for line in _lines(stack, [one.text for one in stack.layers])),
            after=tuple(
                line
                for stack, wanted in zip(model.stacks, layers, strict=True)
                for line in _lines(stack, [one.text for one in wanted])
            ),
            changes=tuple(drawn.changes),
            norms=drawn.every,
            added=Parameters(names=tuple(added), count=sum(added.values())),
            removed=Parameters(names=tuple(removed), count=sum(removed.values())),
            unused=_sized(model, drawn.unused),
            notes=(*dict.fromkeys(drawn.notes), *(f"{path} is called by nothing; it stays" for path in model.uncalled)),
            operation=operation,
        ),
        placement,
        layers,
    )


def _sized(model: Understood, names: Sequence[str]) -> Parameters:
    sizes = {
        name: node.size for _, node in model.graph.leaves() if node.kind == "parameter" for name in node.attrs["names"]
    }
    return Parameters(names=tuple(names), count=sum(sizes.get(name, 0) for name in names))


def _lines(stack: Stack, texts: Sequence[str]) -> list[str]:
    """One line for equal layers one after another."""
    result = []
    for text, members in groupby(zip(stack.layers, texts, strict=True), key=lambda pair: pair[1]):
        layers = [layer for layer, _ in members]
        where = layers[0].path if len(layers) == 1 else f"{layers[0].path} to {layers[-1].path}"
        result.append(f"{where or 'the model'}: {text}")
    return result


__all__ = ["Change", "Example", "Planned", "given", "plan", "planned"]
