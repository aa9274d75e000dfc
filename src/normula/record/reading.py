"""Here live the records of a reading: what a model does to its residual stream, as a formula for each stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from normula.record.base import SCHEMA

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
    """

    where: str
    layers: int
    block: str
    names: tuple[str, ...] = ()
    constants: tuple[float, ...] = ()
    proof: Proof = "not replayed"
    seen: str = ""
    paths: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return self.block != UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFinding:
    """What a reader should know: a code such as `final-norm-missing`, what was seen, and what to do."""

    code: str
    evidence: str
    remedy: str


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
