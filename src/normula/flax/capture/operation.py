"""Here lives Operation: one equation of a jaxpr that is about to be recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normula.flax.capture.recorder import Held, Recorder
from normula.record.program import Kind


@dataclass(frozen=True, slots=True)
class Operation:
    """One equation of a jaxpr that is about to be recorded; `values` are those of its results, where computed."""

    recorder: Recorder
    name: str
    params: Mapping[str, Any]
    ins: Sequence[Held]
    avals: Sequence[Any]
    values: Sequence[Any]

    @property
    def nodes(self) -> list[int]:
        return [one.node for one in self.ins]

    def emit(self, kind: Kind, inputs: Sequence[int], **attrs: Any) -> int:
        """A node for the first result."""
        return self.recorder.emit(kind, inputs, self.avals[0], self.values[0], **attrs)

    def operands(self) -> list[int]:
        """The operands as they are before they are repeated, and numbers as numbers."""
        full = tuple(self.avals[0].shape)
        found = [self.recorder.compact.get(node, node) for node in self.nodes]
        shapes = [self.recorder.nodes[node].shape for node in found]
        found = found if np.broadcast_shapes(*shapes) == full else self.nodes
        numbers = [self.recorder.number_of(node) for node in found]
        if all(number is not None for number in numbers):
            return found
        return [
            node if number is None else self.recorder.number(number)
            for node, number in zip(found, numbers, strict=True)
        ]
