"""Here live the records between reading and measuring: the steps of one stream, by the nodes of a Program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from normula.record.flow import NormFlow, Pass, WeightFlow

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
    """The norm that all that leaves a stream goes through last.

    Its nodes, its kind, what it adds under the root, and a number that it multiplies by.
    """

    node: int
    source: int
    gain: int
    name: str
    under: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSite:
    """A norm: its module's path, its kind, the node that it reads, the axes of that, what it adds under the root."""

    path: str
    name: str
    source: int
    axes: tuple[int, ...]
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
        centred: whether what reads the stream after its last step is a LayerNorm, which takes off each token's mean.
        sites: all norms of the model.
    """

    start: int
    steps: tuple[StreamStep, ...]
    held: tuple[tuple[int, tuple[int, ...]], ...]
    norms: tuple[LastNorm, ...]
    features: int | None
    width: int
    unknown: tuple[int, ...]
    unknown_beyond: bool
    centred: bool = False
    sites: tuple[NormSite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFlow:
    """What was measured on a stream.

    Attributes:
        passes: one for each seed.
        identity: largest difference between the stream and a * before + branch, relative to the largest number.
        tokens: whether tokens could be told from sequences; else there are no cosines.
        unseen: steps whose values or gradients autograd does not show, by their place.
        unheld: whether some sublayer could not be held constant; then there are no gradients of the skip path.
        own_rules: whether the model has rules of its own for gradients, which are not those of its forward.
        norms: what each norm of the model read.
    """

    passes: tuple[Pass, ...]
    identity: float
    tokens: bool
    unseen: tuple[int, ...]
    unheld: bool
    own_rules: bool = False
    norms: tuple[NormFlow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a watched pass should show of a stream, by node.

    Attributes:
        values: the nodes whose values are wanted.
        edges: those whose gradients are.
        held: for the end of each sublayer, what flows into the operator that made it: no gradient goes into it in the
            pass on the skip path alone.
    """

    values: frozenset[int]
    edges: frozenset[int]
    held: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What one probe gave.

    Attributes:
        loss: the number that was differentiated, where it is a loss; else nan.
        gradients: of each node that was asked for; None where none came to it.
        alone: the same, with the sublayers held.
        output: norm of the gradient that the probe sends into what the model returned.
        weights: the parameters.
    """

    loss: float
    gradients: Mapping[int, NDArray[Any] | None]
    alone: Mapping[int, NDArray[Any] | None]
    output: float
    weights: tuple[WeightFlow, ...]
