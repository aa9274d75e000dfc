"""Here live the records that a checkpoint carries: the formula it belongs to, and what the model did with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from normula.record.base import SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedStage:
    """Equal layers one after another, as `ReadStage` has them, and whether a norm stands before and after them."""

    where: str
    layers: int
    block: str
    streams: tuple[str, ...] = ()
    closing: str = ""
    proof: str = "not replayed"
    embed_norm: bool = False
    final_norm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedNorm:
    """A norm: where it stands, what it computes, and its parameters by the names that the file has.

    `rounded` says whether what it normalised is rounded to the stream's dtype before or after its gain; empty where
    nothing is, or that is not seen.
    """

    path: str
    site: str
    kind: str
    eps: float
    axes: tuple[int, ...]
    layers: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    dtype: str = "float32"
    rounded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The stream at one place: the node of the program that it is, its RMS, and its sums as those of an output."""

    name: str
    node: int
    rms: float
    sums: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One tensor of the output: its RMS, and its sums under fixed random signs over the root of its size."""

    shape: tuple[int, ...]
    rms: float
    sums: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What the model did with a tiny fixed input.

    Attributes:
        dtype: the narrowest that took part; it decides what counts as the same.
        program: digest of what was computed, operator by operator, without dtypes.
        shapes: the same of a pass that computed shapes only; empty where the forward needs values.
        sites: the stream after each layer.
        outputs: what came out.
    """

    dtype: str
    program: str
    shapes: str
    sites: tuple[Site, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a checkpoint knows of the model that it was saved from.

    Attributes:
        formula: all in one line.
        stages, norms: where it normalises.
        inputs: the arguments of the forward that was looked at, as `normula.guard.inputs` writes them; None where they
            cannot be written.
        fingerprint: None where the model computes something else each time, or has no values.
        samples: for each tensor two sums over some of its numbers.
        unsaved: the same for buffers that no file has, such as tables of angles.
        tied: for each name that is not in the file, the name of the tensor that it is the same as.
        buffers: the tensors that are no parameters.
        unused: parameters that the forward never reads.
        versions: of what made it.
    """

    formula: str
    stages: tuple[StampedStage, ...]
    norms: tuple[StampedNorm, ...]
    inputs: Any = None
    fingerprint: Fingerprint | None = None
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    unsaved: dict[str, tuple[float, ...]] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def known(self) -> bool:
        """Whether the formula of every layer is known."""
        return bool(self.stages) and all(stage.block != "unknown" for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was found when a checkpoint met a model, and nothing was refused.

    Attributes:
        where: the checkpoint.
        formula: of the checkpoint.
        allowed: what would have been refused and was let through, in words.
        notes: what a reader should know.
        tree: for JAX, the loaded weights, as they are passed to the model; None for a module that took them in.
    """

    where: str
    formula: str
    allowed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tree: Any = field(default=None, compare=False, repr=False)
