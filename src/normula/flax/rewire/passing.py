"""One pass of a model whose streams follow other formulas: its jaxpr is walked, and values are put in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from normula.flax.capture.recorder import Held, Recorder
from normula.flax.rewire.norms import normalised
from normula.record.nodes import NodeOperation, NodeScript
from normula.record.rewiring import Instruction

FORMULA: Final[Mapping[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "stop": jax.lax.stop_gradient,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "sqrt": jnp.sqrt,
    "log": jnp.log,
    "ramp": lambda a: jnp.clip(a, 0.0, 1.0),
}
"""What an instruction computes that is no norm and no gain."""


class Looking(Recorder):
    """A recorder of the values of some nodes, as they are computed: also of arrays that are traced."""

    def __init__(self, wanted: frozenset[int]) -> None:
        super().__init__(frozenset())
        self.wanted = wanted
        self.found: dict[int, Any] = {}

    def emit(self, kind: Any, inputs: Sequence[int], aval: Any, value: Any = None, *rest: Any, **attrs: Any) -> int:
        node = super().emit(kind, inputs, aval, value, *rest, **attrs)
        if node in self.wanted and node not in self.found and value is not None:
            self.found[node] = value() if callable(value) else value
        return node

    def passed(self, node: int, value: Any) -> Any:
        if node in self.wanted:
            self.found.setdefault(node, value)
        return value


class Stepping(Recorder):
    """A recorder that gives each sublayer what the formula says, and the stream the formula's values.

    Args:
        operation: what is done.
        vectors: the values of the gains and biases of the model's own norms, by their nodes.
        parameters: those that were added, by name.
    """

    def __init__(self, operation: NodeOperation, vectors: Mapping[int, Any], parameters: Mapping[str, Any]) -> None:
        super().__init__(frozenset())
        self.operation, self.vectors, self.parameters = operation, vectors, parameters
        self.lines = [Line(self, script) for script in operation.scripts]
        self.starts = {line.script.start: line for line in self.lines}
        self.closes = {line.script.end: line for line in self.lines}
        self.outputs = {end for line in self.lines for one in line.script.sublayers for end, _ in one.ends}
        self.sources = frozenset(operation.passing.values())
        self.seen: dict[int, Any] = {}
        self.done: dict[int, Any] = {}
        self.owners = {
            (one.entry, reader): (line, place)
            for line in self.lines
            for place, one in enumerate(line.script.sublayers)
            for reader in one.readers
        }
        self.consumers: dict[int, list[int]] = {entry: [] for entry, _ in self.owners}
        for node, (_, inputs) in enumerate(operation.program):
            for one in inputs:
                if one in self.consumers:
                    self.consumers[one].append(node)

    def read(self, ins: list[Held]) -> list[Held]:
        """What an operation reads, with what the formula gives in the place of what sublayers read."""
        return [self._entry(one) if one.node in self.consumers else one for one in ins]

    def _entry(self, held: Held) -> Held:
        following = len(self.nodes)
        reader = next((node for node in self.consumers[held.node] if node >= following), -1)
        owner = self.owners.get((held.node, reader))
        if owner is None:
            return held
        line, place = owner
        value = line.value(line.script.script.branches[place].entry)
        return Held(held.node, held.aval, jnp.asarray(value, held.aval.dtype).reshape(held.aval.shape))

    def passed(self, node: int, value: Any) -> Any:
        """A node may come again, by an operation that changes nothing."""
        if node in self.done:
            known = self.done[node]
            return known if (known.shape, known.dtype) == (value.shape, value.dtype) else value
        found = self._passed(node, value)
        if found is not value:
            found = jnp.asarray(found, value.dtype)
            self.done[node] = found
        return found

    def _passed(self, node: int, value: Any) -> Any:
        if node in self.outputs:
            self.seen[node] = value
        if node in self.operation.passing:
            value = self.seen[self.operation.passing[node]]
        if node in self.closes:
            value = self.closes[node].closed(value)
        if node in self.starts:
            value = self.starts[node].begun(value)
        if node in self.sources:
            self.seen[node] = value
        return value


class Line:
    """The values of one script in a pass."""

    def __init__(self, stepping: Stepping, script: NodeScript) -> None:
        self.stepping, self.script = stepping, script
        self.made = {one.out: one for one in script.script.code}
        self.values: dict[str, Any] = {}

    def begun(self, stream: Any) -> Any:
        """The stream as the layers begin with it."""
        embed = self.script.script.embed
        self.values["x"] = self._normed(embed, stream) if embed else stream
        return self.values["x"]

    def closed(self, stream: Any) -> Any:
        """The stream after the layers."""
        script = self.script.script
        if script.code:
            stream = self.value(script.branches[-1].after)
        return self._normed(script.closing, stream) if script.closing and not script.holds_ends else stream

    def value(self, name: str) -> Any:
        """A value of the formula, computed when it is first needed."""
        if name not in self.values:
            if name in self.made:
                self.values[name] = self._computed(self.made[name])
            else:
                seen, ends = self.stepping.seen, self.script.sublayers[int(name[1:])].ends
                if any(end not in seen for end, _ in ends):
                    raise ValueError("This formula runs a sublayer before one whose output it reads.")
                parts = [seen[end] if sign == 1 else sign * seen[end] for end, sign in ends]
                self.values[name] = sum(parts[1:], parts[0])
        return self.values[name]

    def _computed(self, one: Instruction) -> Any:
        inputs = [self.value(each) if isinstance(each, str) else each for each in one.inputs]
        if one.op == "norm":
            return self._normed(one.place, inputs[0])
        if one.op == "gain":
            return self.stepping.parameters[self.script.place(one.place).replace(".", "/")]
        return FORMULA[one.op](*inputs)

    def _normed(self, place: str, stream: Any) -> Any:
        stepping, path = self.stepping, self.script.place(place)
        new = next((one for one in stepping.operation.norms if one.path == path), None)
        if new is None:
            norm = stepping.operation.own[path]
            vectors = {name: stepping.vectors[node] for name, node in norm.vectors.items()}
            return normalised(norm.kind, stream, norm.axes, norm.under, vectors, norm.scale)
        name = path.replace(".", "/")
        vectors = {
            part: stepping.parameters[f"{name}/{part}"]
            for part in ("scale", "bias", "alpha", "shift")
            if f"{name}/{part}" in stepping.parameters
        }
        return normalised(new.kind, stream, new.axes, new.eps, vectors)


def is_same(recorder: Recorder, operation: NodeOperation) -> bool:
    """Whether a pass computes what was read."""
    found = tuple((node.kind, node.inputs) for node in recorder.nodes)
    return found == operation.program
