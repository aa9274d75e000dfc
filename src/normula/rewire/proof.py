"""The proof of a rewiring: the new model is read, and what is read must be what was wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from normula.formula import Placement
from normula.formula.words import STREAM
from normula.read import read
from normula.record.reading import UNKNOWN, Reading, ReadStage
from normula.rewire.errors import RewireError
from normula.rewire.operation import INSIDE
from normula.rewire.understood import Understood
from normula.rewire.wanted import Wanted


def prove(new: Any, model: Understood, placement: Placement, layers: Sequence[Sequence[Wanted]]) -> Reading:
    """Read the new model; each layer's formula, and what stands before and after each stack, must be the wanted one.

    Raises:
        RewireError: something else is read, or the new model's forward raises.
    """
    try:
        args, kwargs = model.given_to(new)
        reading = read(new, *args, **kwargs)
    except Exception as error:
        said = str(error).strip().splitlines()
        raise RewireError(
            f"{placement.name} was put into the model, and then its forward raises {type(error).__name__}"
            f"{f' ({said[0]})' if said else ''}; so it is not returned."
        ) from error
    found = [stage for stage in reading.stages for _ in range(stage.layers)]
    wanted = [one for stack in layers for one in stack]
    for one, stage in zip(wanted, found, strict=False):
        if stage.block not in one.same:
            raise RewireError(_otherwise(one, stage))
    if len(found) != len(wanted):
        raise RewireError(
            f"The new model is read with {len(found)} layers, and it had {len(wanted)}; it is not returned."
        )
    _check_inner(reading, wanted)
    _check_ends(reading, model, placement)
    return reading


def _check_inner(reading: Reading, layers: Sequence[Wanted]) -> None:
    """Norms inside sublayers must be where the formula has them."""
    place = 0
    for one in layers:
        own = reading.sublayers[place : place + len(one.layer.sublayers)]
        place += len(own)
        for (number, part), _ in one.inner.items():
            kind = one.layer.words[number]
            if not any(INSIDE[part] in sublayer.inner for sublayer in own if sublayer.kind == kind):
                raise RewireError(
                    f"A norm of {part} was put into {kind} of layer {one.layer.number}, and the new model is read "
                    f"without one inside. It is not returned."
                )


def _otherwise(wanted: Wanted, stage: ReadStage) -> str:
    read_as = f"unknown: {stage.seen}" if stage.block == UNKNOWN else stage.block
    return (
        f"Layer {wanted.layer.number} ({wanted.layer.path or 'in the open'}) does not become {wanted.text}: "
        f"the new model is read as {read_as}. It is not returned."
    )


def _check_ends(reading: Reading, model: Understood, placement: Placement) -> None:
    """What stands before the first and after the last layer of each stack."""
    place = 0
    for stack in model.stacks:
        first, count = place, 0
        while count < len(stack.layers):
            count += reading.stages[place].layers
            place += 1
        embed = bool(stack.embed) if stack.follows else str(placement.embed) != STREAM
        final = bool(stack.final) if stack.is_followed else str(placement.final) != STREAM
        for where, wanted, found in (
            ("before the first layer", embed, reading.embed_norms[first]),
            ("after the last layer", final, reading.final_norms[place - 1]),
        ):
            if wanted != found:
                raise RewireError(
                    f"A norm {where} of {stack.layers[0].path or 'the stack'} was {'wanted' if wanted else 'to go'}, "
                    f"and the new model is read {'without it' if wanted else 'with one'}. It is not returned."
                )
