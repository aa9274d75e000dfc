"""Passes made by hand: what the findings and the growth law are asked about."""

import math
from collections.abc import Sequence
from typing import Any

from normula.record import Pass, StepFlow


def step(place: int = 0, **fields: Any) -> StepFlow:
    usual = dict(
        layer=place // 2 + 1,
        name=("attn", "mlp")[place % 2],
        rms_before=1.0,
        rms_after=1.0,
        branch_rms=1.0,
        skip_rms=1.0,
        gradient=1.0,
        skip_gradient=1.0,
        token_cosine=0.1,
        step_cosine=0.9,
        largest=3.0,
    )
    return StepFlow(**(usual | fields))


def one_pass(steps: Sequence[StepFlow] = (), **fields: Any) -> Pass:
    usual = dict(
        seed=0,
        training_step=0,
        loss=math.nan,
        steps=tuple(steps) or (step(0), step(1)),
        weights=(),
        input_gradient=1.0,
        skip_gradient=1.0,
        output_gradient=1.0,
        norm_passes=0.9,
    )
    return Pass(**(usual | fields))


def sized(sizes: Sequence[float], **fields: Any) -> Pass:
    """A pass whose stream has these sizes after its steps."""
    return one_pass([step(place, rms_after=size) for place, size in enumerate(sizes)], **fields)
