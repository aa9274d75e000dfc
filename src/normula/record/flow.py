"""Here live the records of flow: what a stack does to signal and gradient, by depth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from normula.record.base import SCHEMA, Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlow:
    """One step of the stream: the place between two values of x.

    All sizes are root mean squares over D, mean over B and T. Gradients are norms over B, T and D.

    Attributes:
        layer: number of the layer, from 1.
        name: what the step is: `attn`, `mlp`, or for a formula of a whole layer the number of the statement; in a model
            that was read, the words of the sublayers in it, `attn+mlp`.
        rms_before, rms_after: the stream before and after.
        branch_rms: what the sublayers add, after any norm and factor on it; 0 where nothing is added.
        skip_rms: what it is added to, after any factor on the skip.
        gradient: of the probe with respect to the stream before the step.
        skip_gradient: the part of it that reached this place on the skip path alone.
        token_cosine: mean cosine between the tokens of a sequence, after the step; nan for one token.
        step_cosine: mean cosine between a token before and after the step.
        largest: largest absolute value of the stream after the step.
        centred_cosine: `token_cosine` without each token's own mean over D, which a LayerNorm removes.
        swallowed: share of the numbers in the branch, other than 0, that are less than half of a bfloat16 spacing at
            what they are added to: in a stream of that type, the sum would not change.
    """

    layer: int
    name: str
    rms_before: float
    rms_after: float
    branch_rms: float
    skip_rms: float
    gradient: float
    skip_gradient: float
    token_cosine: float
    step_cosine: float
    largest: float
    centred_cosine: float = math.nan
    swallowed: float = math.nan

    @property
    def ratio(self) -> float:
        """Branch over skip."""
        return self.branch_rms / self.skip_rms if self.skip_rms else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFlow:
    """One parameter: its name, norm (Frobenius) and gradient's norm."""

    name: str
    norm: float
    gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """The weight decay of a parameter that should keep its size: a norm gain, a norm bias or a residual scale."""

    name: str
    role: str
    decay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormFlow:
    """What one norm read.

    Attributes:
        path: of its module.
        kind: `layernorm`, `rmsnorm`, `l2norm`, `groupnorm`.
        eps: what keeps its divisor from being 0.
        tokens: how many it read, without those that are not finite.
        constant: those of them in which there is nothing to divide: no deviation, or for an RMSNorm nothing but zeros.
        offset: largest mean over D of a token, in its standard deviations.
    """

    path: str
    kind: str
    eps: float
    tokens: int
    constant: int
    offset: float

    @property
    def amplification(self) -> float:
        """What the gradient of a constant token is multiplied by."""
        size = self.eps if self.kind == "l2norm" else math.sqrt(self.eps)
        return 1 / size if size else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward and backward pass of one seed at one training step.

    Attributes:
        seed: of weights, input and probe.
        training_step: updates made before it; 0 is initialisation.
        loss: of the probe `loss`, in nats; nan for other probes.
        steps: the steps of the stream, in order.
        weights: the parameters.
        input_gradient: norm of the gradient with respect to the embedded input.
        skip_gradient: the part of it that travelled the skip path alone.
        output_gradient: norm of the gradient that the probe sends into the network's output.
        norm_passes: share of the gradient that the last norm lets through to its input, 0 to 1; nan without a norm.
    """

    seed: int
    training_step: int
    loss: float
    steps: tuple[StepFlow, ...]
    weights: tuple[WeightFlow, ...]
    input_gradient: float
    skip_gradient: float
    output_gradient: float
    norm_passes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a measurement shows, in words, with the numbers.

    Attributes:
        kind: a short name, such as `void-probe` or `token-collapse`.
        weight: `void` (the measurement says nothing), `warning`, `note`.
        text: one or two sentences.
    """

    kind: str
    weight: Literal["void", "warning", "note"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthLaw:
    """How the size of the stream grows with the number of steps n, fitted to the mean over seeds.

    Attributes:
        kind: `flat`, `power` ((n + offset)**exponent) or `exponential` (exp(exponent * n)).
        exponent: of the law; 0 for flat.
        offset: of a power, the size of the stream before the first step, in steps.
        r2: share of the variance of log RMS that the law explains.
    """

    kind: Literal["flat", "power", "exponential"]
    exponent: float
    r2: float
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What was measured on one stack.

    Attributes:
        name: the placement; of a model that was read, its class.
        spec: what was built, as `Spec.to_dict` gives it; empty for a model that was read.
        probe: `random`, `loss` or `sum`.
        passes: one for each seed and training step.
        growth: of the stream at initialisation.
        findings: what it shows; a `void` one comes first.
        reading: of a model that was read, as `Reading.to_dict` gives it; else empty.
        paths: of a model that was read, its layers' modules.
        norms: of a model that was read, what each of its norms read.
        decays: where an optimizer was given, the weight decay of each norm gain, norm bias and residual scale.
        identity: of a model that was read, how far the stream after a step is at most from a * before + branch,
            relative to its largest number; else nan.
    """

    name: str
    spec: dict[str, Any]
    probe: str
    passes: tuple[Pass, ...]
    growth: GrowthLaw | None
    findings: tuple[Finding, ...]
    environment: Environment
    reading: dict[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    norms: tuple[NormFlow, ...] = ()
    decays: tuple[Decay, ...] = ()
    identity: float = math.nan
    schema: int = SCHEMA

    @property
    def void(self) -> bool:
        """Whether the gradients say nothing about the stack."""
        return any(finding.weight == "void" for finding in self.findings)

    def at(self, training_step: int) -> tuple[Pass, ...]:
        """The passes of one training step, one a seed."""
        return tuple(one for one in self.passes if one.training_step == training_step)

    @property
    def training_steps(self) -> tuple[int, ...]:
        """The training steps that were measured."""
        return tuple(sorted({one.training_step for one in self.passes}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One forward and backward pass, of which only what was asked for is kept.

    Attributes:
        loss: mean cross-entropy, in nats.
        input_gradient: norm over B, T and D of the loss's gradient with respect to the embedded input.
        gradients: norms of the gradients of the weights asked for, in their order.
        variances: of the stream over D, mean over B and T, before the first layer and after each.
    """

    loss: float
    input_gradient: float
    gradients: tuple[float, ...]
    variances: tuple[float, ...]
