"""Here live the records of a conversion: edits of parameters and norms after which a model computes the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from normula.record.base import SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A learned vector as a norm uses it: a parameter plus a number, 1 in norms that multiply by 1 + weight."""

    name: str
    offset: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """A norm of a model: the path of its module, what it computes, its gain and bias where it has them."""

    path: str
    kind: str
    eps: float
    width: int
    gain: Vector | None = None
    bias: Vector | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names: of the gain, then of the bias."""
        return tuple(one.name for one in (self.gain, self.bias) if one is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearMap:
    """A linear map: its matrix, which axis of it is the input, its bias (empty for none), and the module it runs in."""

    weight: str
    axis: int
    bias: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """W <- W diag(g), b <- b + W beta; then g = 1, beta = 0."""

    norm: Affine
    maps: tuple[LinearMap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfold:
    """g <- root mean square of the columns of all maps, each over that of all; W <- W diag(1/g)."""

    norm: Affine
    maps: tuple[LinearMap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """Subtract from a parameter its mean over an axis."""

    name: str
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRMSNorm:
    """A LayerNorm becomes an RMSNorm with the same gain, bias and epsilon."""

    norm: Affine


@dataclass(frozen=True, slots=True, kw_only=True)
class Untie:
    """A parameter that is another one's too gets values of its own."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Multiply a parameter."""

    name: str
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Epsilon:
    """A norm's epsilon becomes another."""

    norm: Affine
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """A factor w on the skip goes where the skip's value is made, and out of the maps that read it; then w = 1.

    Attributes:
        gain: the parameter w.
        made: vectors along whose last axis the value is made: gain and bias of a norm, or tables.
        maps: what else reads the value.
    """

    gain: str
    made: tuple[Vector, ...]
    maps: tuple[LinearMap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A norm gets the values and the epsilon that another one has in the model before all edits."""

    target: Affine
    source: Affine


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A module stands in the place of another one as well."""

    path: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A module that stands in several places becomes one for each."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Of two norms in succession the first does what both did, its gain the second's times a factor."""

    first: Affine
    second: Affine
    factor: float
    eps: float


Edit: TypeAlias = Fold | Unfold | Centre | AsRMSNorm | Untie | Scale | Epsilon | Carry | Move | Share | Own | Merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a conversion does, and what it leaves.

    Attributes:
        name: of the conversion.
        edits: of parameters and norms.
        done, left: in words; what is left comes with its reason.
        to: formulas of a placement that the model's own code is given, as JSON; None where it stays as it is.
        order: norms of the model, in the order of the stream, whose values those of the new placement get in theirs.
        fixed: parameters whose values a condition is about.
        added: how many numbers the parameters of the new model have more.
        apart: of the outputs before and after, at random gains and biases, in float64: the largest difference over the
            largest output; None before it was run.
    """

    name: str
    edits: tuple[Edit, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    to: Mapping[str, object] | None = None
    order: tuple[Affine, ...] = ()
    fixed: tuple[str, ...] = ()
    added: int = 0
    apart: float | None = None
    schema: int = SCHEMA
