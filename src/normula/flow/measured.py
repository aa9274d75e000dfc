"""What a watched pass of any model shows of a stream that was read, step by step.

The gradient of the skip path is that of a second backward pass in which no gradient goes into a sublayer's output: as
if every sublayer gave a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from normula.flow.observed import Observed
from normula.flow.rows import norm_flow
from normula.flow.sizes import centred, length, rms, step_cosine, swallowed, token_cosine
from normula.flow.tokens import Layouts
from normula.record.flow import Pass, StepFlow
from normula.record.program import Program
from normula.record.stream import LastNorm, Stream, StreamFlow, StreamStep, Term, Watched

Array: TypeAlias = NDArray[Any]
Gradients: TypeAlias = Mapping[int, Array | None]

NORMS: Final = ("layernorm", "rmsnorm", "l2norm")
"""Those whose Jacobian is a projection."""


def watched(stream: Stream) -> Watched:
    """The nodes whose values, and those whose gradients a measurement needs."""
    values = {site.source for site in stream.sites}
    edges = {stream.start, *(step.after for step in stream.steps), *(step.before for step in stream.steps)}
    for step in stream.steps:
        terms = {node for _, node in (*step.branch, *step.skip, *step.carried)}
        values |= {step.before, step.after, step.total} | terms
        edges.add(step.place)
    for norm in stream.norms:
        values |= {norm.source, norm.gain}
        edges |= {norm.source, norm.node}
    return Watched(values=frozenset(values - {-1}), edges=frozenset(edges - {-1}), held=dict(stream.held))


@np.errstate(invalid="ignore", over="ignore")  # what is not finite is a finding, not a warning
def measured(
    program: Program,
    stream: Stream,
    seen: Observed,
    *,
    seeds: Sequence[int],
    probe: str,
    loss: Callable[[Any], Any] | None = None,
    report: Callable[[], None] = lambda: None,
) -> StreamFlow:
    """The measurements of a stream.

    Args:
        program, stream: what was recorded, and the steps of its stream by node.
        seen: the watched pass.
        seeds: of random probes.
        probe: `random` or `sum`, of the first floating-point array that the model returns.
        loss: from what the model returns to one number; instead of a probe.
        report: called after each pass.

    Raises:
        ValueError: there is nothing to differentiate.
    """
    layouts = Layouts(program, stream, seen)
    wanted = {stream.start, *(step.place for step in stream.steps)}
    wanted |= {node for norm in stream.norms for node in (norm.source, norm.node)}
    nodes = [node for node in sorted(seen.edges) if node in wanted]
    passes = []
    for seed in seeds:
        passes.append(_Measured(stream, seen, layouts, nodes).one(seed, probe, loss))
        report()
    return StreamFlow(
        passes=tuple(passes),
        identity=max((_identity(seen.values, step) for step in stream.steps), default=math.nan),
        tokens=all(layouts.of(step.after) is not None for step in stream.steps),
        unseen=tuple(place for place, step in enumerate(stream.steps) if step.place not in seen.edges),
        unheld=seen.unheld,
        own_rules=seen.own_rules,
        norms=tuple(norm_flow(site, seen.values[site.source]) for site in stream.sites if site.source in seen.values),
    )


class _Measured:
    """A watched pass that is differentiated, once for each probe."""

    def __init__(self, stream: Stream, seen: Observed, layouts: Layouts, nodes: Sequence[int]) -> None:
        self.stream, self.seen, self.layouts, self.nodes = stream, seen, layouts, nodes

    def one(self, seed: int, probe: str, loss: Callable[[Any], Any] | None) -> Pass:
        """One probe: a backward pass as it is, and one with the sublayers held."""
        found = self.seen.probed(self.nodes, seed, probe, loss)
        return Pass(
            seed=seed,
            training_step=0,
            loss=found.loss,
            steps=tuple(self._step(step, found.gradients, found.alone) for step in self.stream.steps),
            weights=found.weights,
            input_gradient=_length(found.gradients, self.stream.start),
            skip_gradient=self._skip_length(found.alone, self.stream.start, 1),
            output_gradient=found.output,
            norm_passes=_norm_passes(self.stream.norms, self.seen.values, found.gradients),
        )

    def _step(self, step: StreamStep, gradients: Gradients, alone: Gradients) -> StepFlow:
        values = self.seen.values
        before, after = values[step.before], values[step.after]
        old, new = self.layouts.of(step.before), self.layouts.of(step.after)
        return StepFlow(
            layer=step.layer,
            name=step.name,
            rms_before=rms(before),
            rms_after=rms(after),
            branch_rms=_size(values, step.branch, step.total),
            skip_rms=_size(values, step.skip, step.total),
            gradient=_length(gradients, step.place),
            skip_gradient=self._skip_length(alone, step.place, step.layer),
            token_cosine=math.nan if new is None else token_cosine(new(after)),
            centred_cosine=math.nan if new is None else token_cosine(centred(new(after))),
            step_cosine=math.nan if old is None or new is None else step_cosine(old(before), new(after)),
            largest=float(np.abs(after).max()),
            swallowed=_swallowed(values, step),
        )

    def _skip_length(self, alone: Gradients, node: int, layer: int) -> float:
        """Of a gradient that came from above a layer: nan where a sublayer there could not be held."""
        unknown = any(other >= layer for other in self.stream.unknown)
        unknown |= self.stream.unknown_beyond or self.seen.unheld
        return math.nan if unknown else _length(alone, node)


def _length(gradients: Gradients, node: int) -> float:
    return length(gradients[node]) if node in gradients else math.nan


# ---- sizes


def _total(values: Mapping[int, Array], terms: Sequence[Term], like: int) -> Array | None:
    """The sum of some terms in the shape of their sum; None where they have another layout."""
    if not terms:
        return None
    shape = values[like if like >= 0 else terms[0][1]].shape
    result = np.zeros(shape)
    for sign, node in terms:
        term = values[node]
        if term.size == result.size and term.shape != shape:
            term = term.reshape(shape)
        try:
            result = result + sign * np.broadcast_to(term, shape)
        except ValueError:
            return None
    return result


def _size(values: Mapping[int, Array], terms: Sequence[Term], like: int) -> float:
    """RMS of a sum of terms; 0 where there are none, nan where they cannot be added here."""
    total = _total(values, terms, like)
    return rms(total) if total is not None else math.nan if terms else 0.0


def _swallowed(values: Mapping[int, Array], step: StreamStep) -> float:
    """Share of a branch that a stream in bfloat16 would lose; 0 where nothing is added, nan as in `_size`."""
    if not step.branch or not step.skip:
        return 0.0
    branch, skip = (_total(values, terms, step.total) for terms in (step.branch, step.skip))
    return math.nan if branch is None or skip is None else swallowed(branch, skip)


def _identity(values: Mapping[int, Array], step: StreamStep) -> float:
    """How far the residual sum is from a * before + branch, relative to the largest number in it."""
    if step.total < 0:
        return 0.0
    after = values[step.total]
    branch, carried = (_total(values, terms, step.total) for terms in (step.branch, step.carried))
    if (step.branch and branch is None) or (step.carried and carried is None):
        return math.inf
    parts = [part for part in (branch, carried) if part is not None]
    largest = float(np.abs(after).max())
    return float(np.abs(after - sum(parts[1:], parts[0])).max()) / largest if largest else 0.0


def _norm_passes(norms: Sequence[LastNorm], values: Mapping[int, Array], gradients: Gradients) -> float:
    """Share of the gradient behind the last norm that its Jacobian lets through, a projection; nan without a norm.

    The first norm that any gradient comes to is the last one before the probe.
    """
    for norm in norms:
        below, above = gradients.get(norm.source), gradients.get(norm.node)
        if below is None or above is None or norm.name not in NORMS:
            continue
        x = values[norm.source]
        arriving = norm.scale * (above if norm.gain < 0 else above * values[norm.gain])
        square = np.square(x - x.mean(axis=-1, keepdims=True) if norm.name == "layernorm" else x)
        over = np.sum if norm.name == "l2norm" else np.mean
        size = over(square, axis=-1, keepdims=True) + norm.under
        total = length(arriving)
        return length(below * np.sqrt(size)) / total if total else math.nan
    return math.nan
