"""Here live a layer and a stream on their way to a reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from normula.read.layers import Layer, Layers
from normula.read.spell import Spelling
from normula.record.reading import Proof


@dataclass(slots=True)
class ReadLayer:
    """A layer; the nodes of its streams before and after it by name, where there are several."""

    layer: Layer
    spelling: Spelling
    text: str
    seen: str
    proof: Proof = "not replayed"
    starts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ReadChain:
    """A stream, or several that run through the same layers: then what each starts as, and what closes them."""

    cut: Layers
    layers: list[ReadLayer]
    embed: tuple[int, ...]
    final: tuple[int, ...]
    stages: list[list[ReadLayer]] = field(default_factory=list)
    begins: Mapping[str, str] = field(default_factory=dict)
    closing: ReadLayer | None = None
