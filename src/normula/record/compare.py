"""Here live the records of a comparison: all that its page and its verdict are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normula.record.base import SCHEMA, Environment
from normula.record.flow import Flow
from normula.record.race import Trial
from normula.record.verdict import Contestant, Share, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPoint:
    """One stack at initialisation: means over seeds, with the smallest and largest.

    Each triple is (mean, smallest, largest). Gradients are for a gradient of 1 at the output.

    Attributes:
        input_gradient: what arrives at the embedded input.
        skip_gradient: the part of it that travelled the skip path alone.
        rms: the stream after the last step.
        token_cosine: between tokens after the last step.
        void: whether the probe was blind.
    """

    name: str
    init: str
    width: int
    depth: int
    input_gradient: tuple[float, float, float]
    skip_gradient: tuple[float, float, float]
    rms: tuple[float, float, float]
    token_cosine: tuple[float, float, float]
    void: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PopularPoint:
    """One point of the popular figure: the gradient at the input, for one depth and probe.

    Attributes:
        probe: `sum`, as the figure has it, or `random`.
        norm_passes: share of the gradient that the last norm lets through; nan where the stack ends in none.
    """

    name: str
    depth: int
    probe: str
    input_gradient: float
    norm_passes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that one comparison found.

    Attributes:
        settings: what was asked for.
        data: name, digest and unigram loss of the text.
        flows: each placement at the race's size, over the first training steps.
        depths: each placement at initialisation, over depth.
        popular: the popular figure, with both probes.
        trials: the runs that ended.
        planned: how many runs there were to be.
        shares: what explains the final losses, largest first.
        verdict: what was found, in words.
        seconds: that the whole took.
    """

    contestants: tuple[Contestant, ...]
    settings: dict[str, Any]
    data: dict[str, Any]
    flows: tuple[Flow, ...]
    depths: tuple[DepthPoint, ...]
    popular: tuple[PopularPoint, ...]
    trials: tuple[Trial, ...]
    planned: int
    shares: tuple[Share, ...]
    verdict: tuple[Statement, ...]
    environment: Environment
    seconds: float
    schema: int = SCHEMA
