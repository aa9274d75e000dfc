"""A whole network in float64, statement by statement as the formula was written.

It shares neither the canonical form nor the straight-line program with the frameworks, only the names of
the parameters: what agrees with it agrees with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Number
from normula.formula.words import NORMS
from normula.oracle.attention import Mask, attention, visibility
from normula.oracle.mlp import mlp, moe
from normula.oracle.norms import Array, NamedPullback, normalise
from normula.oracle.operators import TRUTHS, Truth
from normula.oracle.tape import Value, backward, einsum
from normula.spec import Plan, Spec, Step, plan
from normula.spec.plan import norm_kind
from normula.spec.positions import relative_buckets, rotary_angles

Weights = Mapping[str, Array]
Ids = NDArray[np.int64]
Pull = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A forward pass that can be pulled back.

    Attributes:
        output: (B, T, D); with a vocabulary (B, T, V); with classes (B, classes).
        stream: x before the first step, and after each step; each (B, T, D).
    """

    output: Array
    stream: tuple[Array, ...]
    _input: Value
    _end: Value
    _weights: Mapping[str, Value]

    def pullback(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        """The gradients of sum(dy * output): with respect to the input (ids: embedded ones), and to every weight."""
        backward(self._end, dy)
        return self._input.gradient, {name: value.gradient for name, value in self._weights.items()}


def run(
    spec: Spec,
    weights: Weights,
    inputs: Array | Ids,
    mask: Mask | None = None,
    *,
    source: Array | Ids | None = None,
    source_mask: Mask | None = None,
    training_step: int = 0,
) -> Run:
    """The network of a spec.

    Args:
        spec: what to run; built-in sublayers only.
        weights: every parameter of the spec's plan.
        inputs: (B, T, D) vectors; with a vocabulary (B, T) ids; with features (B, T, P) values.
        mask: (B, T), true where a token is real; None where all are.
        source, source_mask: what goes into the encoder, where there is one, and which of its tokens are real.
        training_step: what `step` stands for.

    Returns:
        The output and the stream. Its pullback works once.
    """
    written = plan(spec)
    values = {name: Value(weights[name]) for name in written.parameters}
    memory = None
    if written.encoder is not None:
        assert source is not None
        inside = {name.removeprefix("encoder."): v for name, v in values.items() if name.startswith("encoder.")}
        _, memory, _ = _Network(written.encoder, inside, source_mask, is_encoder=True, training_step=training_step).run(
            source
        )
    first, end, seen = _Network(written, values, mask, memory, source_mask, training_step=training_step).run(inputs)
    return Run(output=end.array, stream=tuple(seen), _input=first, _end=end, _weights=values)


class _Network:
    def __init__(
        self,
        written: Plan,
        weights: Mapping[str, Value],
        mask: Mask | None,
        memory: Value | None = None,
        memory_mask: Mask | None = None,
        is_encoder: bool = False,
        training_step: int = 0,
    ) -> None:
        self.plan, self.spec, self.weights = written, written.spec, weights
        self.mask, self.memory, self.memory_mask, self.is_encoder = mask, memory, memory_mask, is_encoder
        self.training_step = Value(np.array(float(training_step)))

    def run(self, inputs: Array | Ids) -> tuple[Value, Value, list[Array]]:
        """The input, the output, and the stream at each step."""
        first, x = self._embedded(inputs)
        self.tokens = x.array.shape[1]
        self.bias = self._relative_bias()
        streams = {"x": self._step(self.plan.embed, {"x": x})["x"]}
        for name, start in self.plan.starts:
            streams[name] = self._step(start, {"x": streams["x"]})["x"]
        seen = [streams["x"].array]
        around = None if self.spec.placed.operator is None else TRUTHS[self.spec.placed.operator]
        if around is not None:
            streams["x"] = around.begin(streams["x"])
        for layer in self.plan.layers:
            for step in layer:
                streams = self._step(step, streams) if around is None else self._inside(around, step, streams["x"])
                seen.append(streams["x"].array)
        if around is not None:
            streams["x"] = around.end(streams["x"], self._own("final.read"))
        return first, self._read_out(self._step(self.plan.final, streams)["x"]), seen

    def _embedded(self, inputs: Array | Ids) -> tuple[Value, Value]:
        """What gradients with respect to the input are of, and the input as vectors.

        Vectors are as they are; ids and values have their embedding, plus that of their positions where these are
        learned.
        """
        if self.spec.vocab is not None:
            first = x = _rows(self.weights["embed.tokens.weight"], np.asarray(inputs, dtype=np.int64))
        else:
            first = x = Value(np.asarray(inputs, dtype=np.float64))
        if self.spec.features is not None:
            x = einsum("btp,dp->btd", x, self.weights["embed.features.weight"]) + self.weights["embed.features.bias"]
        if self.spec.positions != "learned":
            return first, x
        places = np.broadcast_to(np.arange(x.array.shape[1]), x.array.shape[:2])
        x = x + _rows(self.weights["embed.positions.weight"], places)
        return (x if self.spec.vocab is not None else first), x

    def _relative_bias(self) -> Value | None:
        """(H, T, T) from the learned table, one number a bucket and head."""
        if self.spec.positions != "relative":
            return None
        buckets = relative_buckets(self.tokens, self.tokens, causal=self.spec.causal)
        bias = _rows(self.weights["relative.weight"], buckets)
        return Value(np.moveaxis(bias.array, -1, 0), [(bias, lambda dy: np.moveaxis(dy, 0, -1))])

    def _read_out(self, x: Value) -> Value:
        """The head, on each token or, for a classifier, on the mean of the real ones; an encoder has none."""
        if self.spec.classes is not None:
            x = self._mean(x)
        if self.is_encoder or (self.spec.classes is None and self.spec.vocab is None):
            return x
        head = self.weights["embed.tokens.weight" if self.spec.tied else "head.weight"]
        flat = x.array.reshape(-1, self.spec.width)
        return Value(
            x.array @ head.array.T,
            [(x, lambda dy: dy @ head.array), (head, lambda dy: dy.reshape(-1, head.array.shape[0]).T @ flat)],
        )

    def _mean(self, x: Value) -> Value:
        B, T, _ = x.array.shape
        real = np.ones((B, T)) if self.mask is None else self.mask.astype(np.float64)
        share = real / np.maximum(real.sum(axis=1, keepdims=True), 1)  # the mean of no token is 0
        return Value(np.einsum("bt,btd->bd", share, x.array), [(x, lambda dy: np.einsum("bt,bd->btd", share, dy))])

    def _step(self, step: Step, streams: Mapping[str, Value]) -> dict[str, Value]:
        """The statements of one formula, as written."""
        names = {**streams, "step": self.training_step}
        for statement in step.formula.written.statements:
            self._assign(step, statement, names)
        return {name: names[name] for name in streams}

    def _inside(self, around: Truth, step: Step, state: Value) -> dict[str, Value]:
        """A step inside an operator: read, run the branch, write."""
        y = self._step(step, {"x": around.read(state, self._own(f"{step.prefix}.read"))})["x"]
        return {"x": around.write(state, y, self._own(f"{step.prefix}.write"))}

    def _own(self, path: str) -> dict[str, Value]:
        """The parameters under a path."""
        return {name.removeprefix(f"{path}."): v for name, v in self.weights.items() if name.startswith(f"{path}.")}

    def _assign(self, step: Step, statement: Assign, names: dict[str, Value]) -> None:
        names[statement.name] = self._value(step, statement.value, names)

    def _value(self, step: Step, expr: Expr, names: Mapping[str, Value]) -> Value:
        match expr:
            case Number(value=value):
                return Value(np.array(float(value)))
            case Name(name=name):
                # a stream that cancels out of the formula need not exist, and its value has no effect
                return names[name] if name in names else Value(np.array(float(step.symbols.get(name, 0.0))))
            case Gain(index=index):
                # a gain that cancels out of the formula has no place in the model, and its value no effect
                kept = step.formula.renumbering.get(index)
                return Value(np.array(1.0)) if kept is None else self.weights[step.path(kept)]
            case Negative(value=inner):
                return -self._value(step, inner, names)
            case Binary(op=op, left=left, right=right):
                a, b = self._value(step, left, names), self._value(step, right, names)
                match op:
                    case "+":
                        return a + b
                    case "-":
                        return a - b
                    case "*":
                        return a * b
                    case "/":
                        return a / b
                    case "**":
                        return a**b
            case Call(argument=argument):
                return self._call(step, expr, self._value(step, argument, names))

    def _call(self, step: Step, call: Call, x: Value) -> Value:
        match call.word:
            case "stop":
                return Value(x.array)
            case "sqrt":
                return x ** Value(np.array(0.5))
            case "log":
                return x.map(np.log, lambda z: 1 / z)
            case "ramp":
                return x.map(lambda z: np.clip(z, 0, 1), lambda z: ((z > 0) & (z < 1)).astype(np.float64))
            case "sigmoid":
                return x.map(_sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z)))
            case "silu":
                return x.map(lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * (1 - _sigmoid(z))))
        path = step.path(step.formula.renumbering[call.index])
        own = self._own(path)
        arrays = {name: value.array for name, value in own.items()}
        if call.word in NORMS:
            y, pullback = normalise(norm_kind(self.spec, call.word), x.array, arrays, eps=self.spec.eps)
        else:
            y, pullback = self._sublayer(step, call, x.array, arrays)
            own |= self._others(step.kind(call))
        # one pullback gives all gradients; every source takes its own from it
        answers: list[tuple[Array, dict[str, Array]]] = []

        def ask(dy: Array) -> tuple[Array, dict[str, Array]]:
            if not answers:
                answers.append(pullback(dy))
            return answers[0]

        def gradient(name: str) -> Pull:
            return lambda dy: ask(dy)[1][name]

        return Value(y, [(x, lambda dy: ask(dy)[0]), *((value, gradient(name)) for name, value in own.items())])

    def _others(self, kind: str) -> dict[str, Value]:
        """What attention reads besides its input and weights."""
        if kind == "attn" and self.bias is not None:
            return {"bias": self.bias}
        return {"memory": self.memory} if kind == "cross" and self.memory is not None else {}

    def _sublayer(self, step: Step, call: Call, x: Array, own: Weights) -> tuple[Array, NamedPullback]:
        spec = self.spec
        inner = {part: norm_kind(spec, word) for part, word in step.inner(call).items()}
        match step.kind(call):
            case "attn" | "cross" as kind:
                others = {name: value.array for name, value in self._others(kind).items()}
                rotary = kind == "attn" and spec.positions == "rotary"
                return attention(
                    x,
                    own,
                    heads=spec.heads,
                    key_heads=spec.key_heads,
                    visible=self._visible(kind),
                    memory=others.get("memory"),
                    bias=others.get("bias"),
                    angles=rotary_angles(self.tokens, spec.head_width, spec.rotary_base) if rotary else None,
                    scale=spec.scale,
                    inner=inner,
                    over="head" if spec.qk_norm == "head" else "width",
                    eps=spec.eps,
                )
            case "mlp":
                return mlp(x, own, activation=spec.activation, inner=inner, eps=spec.eps)
            case "moe":
                return moe(x, own, activation=spec.activation, used=spec.experts_used)
            case kind:
                raise ValueError(f"the oracle knows attn, cross, mlp and moe, not {kind}")

    def _visible(self, kind: str) -> Mask | None:
        if kind == "attn":
            return visibility(self.tokens, causal=self.spec.causal, mask=self.mask)
        return None if self.memory_mask is None else self.memory_mask[:, None, None, :]


def _rows(table: Value, ids: Ids) -> Value:
    """The rows of a table at some places."""

    def pull(dy: Array) -> Array:
        total = np.zeros_like(table.array)
        np.add.at(total, ids, dy)
        return total

    return Value(table.array[ids], [(table, pull)])


def _sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))
