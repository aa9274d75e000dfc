"""Models that a source gives: read as they are, or, where they hold no weights, with a smaller twin as the proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from normula.framework import room
from normula.read.findings import finding, in_order
from normula.record.reading import Ran, ReadFinding, Reading, ReadStage


def read_source(source: Any) -> Reading:
    """The reading of a model that came from a source.

    A model without weights computes shapes only, so nothing of it can be replayed. Its twin, a small model of the
    same structure, can; a stage of the model is proved by the stage of the twin that has the same formula.

    Where a source has flags, the model is made once more with each of them the other way round: a flag with which
    the same is computed either way is a finding.

    Args:
        source: model, args, kwargs; a twin, or None; a small model with its flags, or None.

    Raises:
        ValueError: as `read`.
    """
    from normula.read import read

    found = read(source.model, *source.args, **source.kwargs)
    if source.twin is not None:
        found = confirmed(found, read(source.twin.model, *source.twin.args, **source.twin.kwargs))
    idle = () if source.flagged is None else idle_flags(source.flagged)
    return replace(found, findings=in_order([*found.findings, *idle]))


def idle_flags(flagged: Any) -> Iterator[ReadFinding]:
    """A finding for each flag that changes nothing of what is computed."""
    plain = computed(flagged.source)
    for flag in flagged.flags:
        try:
            other = computed(flag.flipped())
        except Exception:  # what cannot be made or run the other way round says nothing of its flag
            continue
        if other == plain:
            evidence = f"{flag.name} is {flag.value}, and with {not flag.value} the same is computed"
            yield finding("flag-without-effect", evidence)


def computed(source: Any) -> tuple[Any, ...]:
    """What one pass of a model computes on the way to what it returns, with the names of its parameters."""
    program = room("torch").capture(source.model, source.args, source.kwargs)
    alive = set(program.outputs)
    for number in range(len(program.nodes) - 1, -1, -1):
        if number in alive:
            alive.update(program.nodes[number].inputs)
    places = {number: place for place, number in enumerate(sorted(alive))}
    nodes = [program.nodes[number] for number in places]
    return (
        tuple(places[number] for number in program.outputs),
        tuple(
            (one.kind, tuple(places[number] for number in one.inputs), one.shape, one.dtype, dict(one.attrs))
            for one in nodes
        ),
    )


def confirmed(found: Reading, twin: Reading) -> Reading:
    """A reading with the proofs of its twin's; what can be measured is the twin."""
    proved = {stage.block for stage in twin.stages if stage.proof == "replayed"}

    def stage(one: ReadStage) -> ReadStage:
        replayed = one.proof == "not replayed" and one.block in proved
        return replace(one, proof="replayed on a twin") if replayed else one

    ran = twin.ran and Ran(twin.ran.model, twin.ran.args, twin.ran.kwargs, is_twin=True)
    return replace(found, stages=tuple(stage(one) for one in found.stages), ran=ran)
