"""A placement at initialisation over depth, and the popular figure of the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from normula.flow.flow import flow
from normula.formula import Placement
from normula.framework import room
from normula.record import DepthPoint, Flow, Pass, PopularPoint
from normula.spec import Spec


def depth_point(spec: Spec, *, seeds: int = 3, probe: str = "random", framework: str | None = None) -> DepthPoint:
    """One stack at initialisation, in short."""
    found = flow(spec, seeds=seeds, probe=probe, framework=framework)
    return DepthPoint(
        name=found.name,
        init=spec.init,
        width=spec.width,
        depth=spec.layers,
        input_gradient=_spread(found, lambda one: one.input_gradient / one.output_gradient),
        skip_gradient=_spread(found, lambda one: one.skip_gradient / one.output_gradient),
        rms=_spread(found, lambda one: one.steps[-1].rms_after),
        token_cosine=_spread(found, lambda one: one.steps[-1].token_cosine),
        void=found.void,
    )


def popular(placement: Placement, depths: Sequence[int], *, framework: str | None = None) -> tuple[PopularPoint, ...]:
    """The popular figure for a step: the gradient at the input over depth, with the sum as probe and a random one."""
    measure = room(framework).popular
    return tuple(measure(placement, depth, probe) for probe in ("sum", "random") for depth in depths)


def _spread(found: Flow, value: Callable[[Pass], float]) -> tuple[float, float, float]:
    """Mean, smallest and largest over the seeds."""
    values = [value(one) for one in found.passes]
    if not all(math.isfinite(v) for v in values):
        return (math.nan, math.nan, math.nan)
    return (fmean(values), min(values), max(values))
