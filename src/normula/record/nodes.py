"""Here live the records of a rewiring that is done in a pass, node by node, where a model has no modules to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from normula.record.rewiring import NewGain, NewNorm, Script


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNorm:
    """A norm that a model has, by its nodes.

    Attributes:
        kind: layernorm, rmsnorm, l2norm, dyt or derf.
        axes: that its statistics are over, from the last.
        under: what it adds to the square of its divisor.
        scale: a number that it multiplies by.
        source: what it reads.
        gain, bias, alpha, shift: its vectors and numbers; -1 for none.
        names: of its parameters.
    """

    kind: str
    axes: tuple[int, ...]
    under: float
    scale: float
    source: int
    gain: int = -1
    bias: int = -1
    alpha: int = -1
    shift: int = -1
    names: tuple[str, ...] = ()

    @property
    def vectors(self) -> Mapping[str, int]:
        """The nodes of what it has of gain, bias, alpha and shift."""
        every = {"gain": self.gain, "bias": self.bias, "alpha": self.alpha, "shift": self.shift}
        return {name: node for name, node in every.items() if node >= 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSublayer:
    """A sublayer, by its nodes.

    Attributes:
        entry: what it reads, in the shape of the stream.
        readers: its nodes that read that.
        ends: the nodes whose sum it gives, with their signs.
    """

    entry: int
    readers: frozenset[int]
    ends: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScript:
    """What a pass does to the stream between two nodes: a script, and its sublayers in order."""

    script: Script
    start: int
    end: int
    sublayers: tuple[NodeSublayer, ...]

    def place(self, name: str) -> str:
        """The path of a norm or gain that the script has below its module, or from the top (`/final_norm`)."""
        return name[1:] if name.startswith("/") else f"{self.script.path}.{name}".lstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOperation:
    """All that a pass does otherwise.

    Attributes:
        scripts: in the order of the streams.
        own: the norms that the model has, by path.
        norms, gains: what is added.
        passing: norms before and after streams that go, each with what it read.
        removed: paths of norms whose parameters go.
        bare: paths of the norms on the stream.
        program: kind and inputs of every node of the pass that was read.
    """

    scripts: tuple[NodeScript, ...]
    own: Mapping[str, NodeNorm]
    norms: tuple[NewNorm, ...]
    gains: tuple[NewGain, ...]
    passing: Mapping[int, int]
    removed: tuple[str, ...]
    bare: tuple[str, ...]
    program: tuple[tuple[str, tuple[int, ...]], ...]
