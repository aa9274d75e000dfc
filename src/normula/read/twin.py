"""Models that a source gives: read as they are, or, where they hold no weights, with a smaller twin as the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from normula.record.reading import Reading, ReadStage


def read_source(source: Any) -> Reading:
    """The reading of a model that came from a source.

    A model without weights computes shapes only, so nothing of it can be replayed. Its twin, a small model of the
    same structure, can; a stage of the model is proved by the stage of the twin that has the same formula.

    Args:
        source: model, args, kwargs; and a twin, or None.

    Raises:
        ValueError: as `read`.
    """
    from normula.read import read

    found = read(source.model, *source.args, **source.kwargs)
    if source.twin is None:
        return found
    return confirmed(found, read(source.twin.model, *source.twin.args, **source.twin.kwargs))


def confirmed(found: Reading, twin: Reading) -> Reading:
    """A reading with the proofs of its twin's."""
    proved = {stage.block for stage in twin.stages if stage.proof == "replayed"}

    def stage(one: ReadStage) -> ReadStage:
        replayed = one.proof == "not replayed" and one.block in proved
        return replace(one, proof="replayed on a twin") if replayed else one

    return replace(found, stages=tuple(stage(one) for one in found.stages))
