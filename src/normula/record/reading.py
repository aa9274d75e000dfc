"""Here live the records of a reading: what a model does to its residual stream, as a formula for each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from normula.record.base import SCHEMA, Live
from normula.record.flow import Flow

UNKNOWN = "unknown"
"""The block of a stage that is not understood."""

Proof = Literal["replayed", "replayed on a twin", "not replayed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNorm:
    """One norm of a model.

    Attributes:
        path: of the module that it runs in.
        parameters: names of its gain and bias, as far as it has them.
        site: where it stands: `embed`, `final`, a place in a layer such as `attn.norm_in`, or inside a sublayer: `qk`.
        kind: `LayerNorm`, `RMSNorm`, `GroupNorm`, `L2Norm`.
        eps: what keeps its divisor from being 0.
        axes: the axes of its input whose statistics it takes, from the last, -1.
        width: how many features one token's statistics are of.
        calls: how often it runs.
        shared: whether these parameters normalise at more than one place.
        dtype: in which the statistics are computed.
        layers: the layers that it runs in, from 1; 0 outside.
    """

    path: str
    parameters: tuple[str, ...]
    site: str
    kind: str
    eps: float
    axes: tuple[int, ...]
    width: int
    calls: int = 1
    shared: bool = False
    dtype: str = "float32"
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSublayer:
    """One sublayer of a model: its word, the module that holds it, its layer from 1, and what is normalised inside."""

    kind: str
    path: str
    layer: int
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStage:
    """Equal layers one after another.

    Attributes:
        where: path of the layers, without their numbers.
        layers: how many.
        block: what one of them does to the stream, as a canonical formula; `unknown`.
        names: what the catalogue calls that.
        constants: fixed numbers in the formula, as they were measured.
        proof: whether the formula gave the model's own stream on real tensors.
        seen: what was seen, where the block is unknown.
        paths: of the layers.
        streams: what each stream beside x starts as, such as `d = x`; nothing after the sign where that is not known.
        closing: what comes out of several streams after the last layer, such as `x + norm(d)`; empty for one stream,
            and where it was not proved.
    """

    where: str
    layers: int
    block: str
    names: tuple[str, ...] = ()
    constants: tuple[float, ...] = ()
    proof: Proof = "not replayed"
    seen: str = ""
    paths: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    closing: str = ""

    @property
    def known(self) -> bool:
        return self.block != UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFinding:
    """What a reader should know: a code such as `final-norm-missing`, what was seen, and what to do."""

    code: str
    evidence: str
    remedy: str


class Ran(Live):
    """What was read, and can run again.

    Attributes:
        model, args, kwargs: of the call that was read.
        is_twin: whether this is a smaller model of the same structure, as the one that was read holds no weights.
    """

    __slots__ = ("args", "is_twin", "kwargs", "model")

    def __init__(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_twin: bool = False) -> None:
        self.model, self.args, self.kwargs, self.is_twin = model, tuple(args), dict(kwargs), is_twin


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a model does to its residual stream.

    Attributes:
        stages: groups of equal consecutive layers, in order of the data's path.
        embed_norms: for each stage, whether a norm stands on the stream before it.
        final_norms: for each stage, whether a norm stands on the stream after it.
        norm: the kind of the norms on the stream; `none`.
        eps: their epsilon; None where there is none.
        inner: what is normalised inside sublayers.
        norms, sublayers: all of them.
        findings: what a reader should know.
        fused: whether an ordinary forward would take a fused path that hides the modules; it was switched off here.
        ran: a `Ran`, where this reading was made here; None for one from a file.
    """

    stages: tuple[ReadStage, ...]
    embed_norms: tuple[bool, ...]
    final_norms: tuple[bool, ...]
    norm: str
    eps: float | None
    inner: tuple[str, ...]
    norms: tuple[ReadNorm, ...]
    sublayers: tuple[ReadSublayer, ...]
    findings: tuple[ReadFinding, ...]
    fused: bool = False
    schema: int = SCHEMA
    ran: Any = field(default=None, compare=False, repr=False)

    def flow(self, *args: Any, **options: Any) -> Flow:
        """Measure what was read, at the weights that it has now: the stream, its branches, its gradients, by depth.

            >>> import torch, normula as nm
            >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            >>> reading = nm.read(layer, torch.randn(2, 5, 8))
            >>> flow = reading.flow(loss=lambda output: output.square().mean())
            >>> [step.name for step in flow.passes[0].steps]
            ['attn', 'mlp']

        Args:
            args: of its forward; none for those that it was read with.
            options: as `normula.flow` takes them: loss, probe, seeds, where, inputs, report.

        Raises:
            ValueError: the reading came from a file and has no model; an argument that cannot be.
        """
        found: Flow = import_module("normula.flow").flow(self, *args, **options)  # a room above this one
        return found

    @property
    def embed_norm(self) -> bool:
        """Whether a norm stands on the stream before the first layer."""
        return bool(self.embed_norms and self.embed_norms[0])

    @property
    def final_norm(self) -> bool:
        """Whether a norm stands on the stream after the last layer."""
        return bool(self.final_norms and self.final_norms[-1])

    def to_dict(self) -> dict[str, Any]:
        """Stages and flags as a table of models has them: one flag for one stage, a list for several."""

        def flags(values: tuple[bool, ...]) -> bool | list[bool]:
            return list(values) if len(values) > 1 else any(values)

        return {
            "stages": [
                {
                    "where": stage.where,
                    "layers": stage.layers,
                    "block": stage.block,
                    "names": list(stage.names),
                    "constants": list(stage.constants),
                    "proof": stage.proof,
                    "seen": stage.seen,
                    "streams": list(stage.streams),
                    "closing": stage.closing,
                }
                for stage in self.stages
            ],
            "embed_norm": flags(self.embed_norms),
            "final_norm": flags(self.final_norms),
            "norm": self.norm,
            "eps": self.eps,
            "inner": list(self.inner),
            "norms": [_plain(norm) for norm in self.norms],
            "sublayers": [_plain(sublayer) for sublayer in self.sublayers],
            "findings": [_plain(finding) for finding in self.findings],
            "fused": self.fused,
            "schema": self.schema,
        }


def _plain(record: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value := getattr(record, name), tuple) else value
        for name in record.__dataclass_fields__
    }
