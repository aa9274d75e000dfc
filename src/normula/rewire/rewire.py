"""`rewire`: a model that exists, with another placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from normula.catalog import placement as named
from normula.formula import Formula, Placement
from normula.framework import framework_of, room
from normula.read import read
from normula.read.streams import analysed
from normula.record.reading import Reading
from normula.record.rewiring import Parameters, Plan
from normula.rewire.anatomy import Stack, anatomy
from normula.rewire.errors import RewireError
from normula.rewire.operation import Drawn, draw
from normula.rewire.wanted import Wanted, check

Example = Sequence[Any] | Mapping[str, Any]


def rewire(model: Any, to: str | Formula | Placement, *, example: Example, accept_inexact: bool = False) -> Any:
    args, kwargs = given(example)
    plan, layers = planned(model, to, args, kwargs)
    there = room("torch").rewire
    new = there.operated(model, plan.operation)
    prove(new, layers, args, kwargs)
    return new


def given(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a forward."""
    return ((), dict(example)) if isinstance(example, Mapping) else (tuple(example), {})


def planned(model: Any, to: str | Formula | Placement, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    placement = named(to) if not isinstance(to, Placement) else to
    check(placement)
    there = room("torch")
    program = there.capture(model, args, kwargs)
    stacks = anatomy(*analysed(program))
    paths = {layer.path: layer.size for stack in stacks for layer in stack.layers}
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for path, size in paths.items():
        shapes.setdefault(path, []).append(size)
    drawn = Drawn(
        argument=there.rewire.arguments(model, shapes, args, kwargs),
        slot=there.rewire.slots(model, [stack.layers[-1].path for stack in stacks]),
    )
    layers = [draw(drawn, placement, stack, sides(stacks)) for stack in stacks]
    operation = drawn.finished()
    plan = Plan(
        to=placement.name,
        before=(),
        after=(),
        changes=tuple(drawn.changes),
        norms=tuple(drawn.placed),
        added=Parameters(),
        removed=Parameters(),
        unused=Parameters(),
        notes=tuple(drawn.notes),
        operation=operation,
    )
    return plan, (placement, stacks, layers)


def sides(stacks: Sequence[Stack]) -> dict[str, int]:
    decoder = next((place for place, one in enumerate(stacks) if "cross" in one.layers[0].words), 0)
    return {"Le": len(stacks[decoder - 1].layers), "Ld": len(stacks[decoder].layers)} if decoder else {}


def prove(new: Any, wanted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Read the new model; every layer and both ends must be as is wanted."""
    placement, stacks, layers = wanted
    reading: Reading = read(new, *args, **kwargs)
    found = [(block.block, block.proof) for block in reading.stages for _ in range(block.layers)]
    texts = [one.text for stack in layers for one in stack]
    if [text for text, _ in found] != texts:
        seen = [stage.seen for stage in reading.stages if stage.seen]
        raise RewireError(f"want {texts} read {[t for t, _ in found]} {seen}")
    embed, final = reading.embed_norms, reading.final_norms
    raise_flags(placement, stacks, reading)


def raise_flags(placement: Any, stacks: Any, reading: Reading) -> None:
    at = 0
    for stack in stacks:
        n = 0
        first = at
        while n < len(stack.layers):
            n += reading.stages[at].layers
            at += 1
        e = str(placement.embed) != "x" if not stack.follows else bool(stack.embed)
        f = str(placement.final) != "x" if not stack.is_followed else bool(stack.final)
        if reading.embed_norms[first] != e or reading.final_norms[at - 1] != f:
            raise RewireError(f"embed {reading.embed_norms[first]} want {e}; final {reading.final_norms[at - 1]} want {f}")
