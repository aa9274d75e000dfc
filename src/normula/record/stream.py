"""Here live the records between reading and measuring: the steps of one stream, by the nodes of a Program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from normula.record.flow import Pass

Term: TypeAlias = tuple[float, int]
"""A factor and the node that it multiplies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """One step of a stream: the residual sum, and the norms and factors around it.

    Attributes:
        layer: number of the layer, from 1.
        name: the words of its sublayers.
        before, after: nodes of the stream.
        place: the node of the same numbers as `before` that they were made in, where their whole gradient comes to.
        total: the residual sum, under the norms and factors on the whole of it; -1 where nothing is added.
        branch: the terms of the sum in which a sublayer is, and constants.
        skip: the other terms.
        carried: the same as `skip`, in terms of the stream before or of a norm of it.
    """

    layer: int
    name: str
    before: int
    after: int
    place: int
    total: int
    branch: tuple[Term, ...]
    skip: tuple[Term, ...]
    carried: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastNorm:
    """The norm that all that leaves a stream goes through last: its nodes, its kind, what it adds under the root."""

    node: int
    source: int
    gain: int
    name: str
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream of a model that was read.

    Attributes:
        start: where what the stream was made from was made, before any norm that comes first.
        steps: in order.
        held: for the end of each sublayer, of all streams, what flows into the operator that made it.
        norms: the last norm of the stream that the model's output comes from, and of this one, where there are any.
        features: the axis of the features in the stream before the first step; None where that is not known.
        width: how many features.
        unknown: the layers that are not understood, whose sublayers cannot be held.
        unknown_beyond: whether there are such layers in a stream that this one leads to.
    """

    start: int
    steps: tuple[StreamStep, ...]
    held: tuple[tuple[int, tuple[int, ...]], ...]
    norms: tuple[LastNorm, ...]
    features: int | None
    width: int
    unknown: tuple[int, ...]
    unknown_beyond: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFlow:
    """What was measured on a stream.

    Attributes:
        passes: one for each seed.
        identity: largest difference between the stream and a * before + branch, relative to the largest number.
        tokens: whether tokens could be told from sequences; else there are no cosines.
        unseen: steps whose values or gradients autograd does not show, by their place.
        unheld: whether some sublayer could not be held constant; else there are no gradients of the skip path.
    """

    passes: tuple[Pass, ...]
    identity: float
    tokens: bool
    unseen: tuple[int, ...]
    unheld: bool
