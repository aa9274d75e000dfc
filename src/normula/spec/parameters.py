"""Every parameter of a plan's steps: its name, its shape, what it does, where it starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from normula.formula.run import number
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS
from normula.spec.kinds import NORM_KINDS
from normula.spec.operators import operator
from normula.spec.role import Role
from normula.spec.spec import Spec
from normula.spec.step import Step

RELATIVE_BUCKETS = 32
RELATIVE_REACH = 128
"""Buckets of relative distances, and the distance from which all share the last one: as in T5."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An array of the network: its shape, what it does, and a factor on its first draw."""

    shape: Shape
    role: Role
    factor: float = 1.0


def parameters(spec: Spec, steps: Iterable[Step], given: Collection[str], is_encoder: bool) -> dict[str, Parameter]:
    """The parameters of a stack without its encoder, in the order in which they are used."""
    found = _around_start(spec)
    for step in steps:
        for call in step.formula.calls:
            path = step.path(call.index)
            if call.word in NORMS:
                found |= norm_parameters(path, norm_kind(spec, call.word), spec.width, _gain_start(step, call, spec))
            elif step.kind(call) not in given:
                found |= _sublayer(spec, path, step, call)
        for gain in step.formula.gains:
            found[step.path(gain.index)] = _gain(gain, step, spec.width)
        found |= _operator(spec, step)
    _check_alive(found)
    out = spec.classes or spec.vocab
    if out is not None and not spec.tied and not is_encoder:
        found["head.weight"] = Parameter(shape=(out, spec.width), role=Role(kind="head"))
    return found


def _operator(spec: Spec, step: Step) -> dict[str, Parameter]:
    """What a registered operator learns around a step, or at the end."""
    name = spec.placed.operator
    if name is None or step.prefix == "embed":
        return {}
    one = operator(name)
    if step.prefix == "final":
        parts = {"read": one.end(spec.width)}
    else:
        number = int(step.symbols["s"]) - 1
        parts = {"read": one.read(spec.width, number), "write": one.write(spec.width, number)}
    return {
        f"{step.prefix}.{part}.{name}": Parameter(shape=shape, role=role)
        for part, several in parts.items()
        for name, (shape, role) in several.items()
    }


def norm_kind(spec: Spec, word: str) -> str:
    """The kind of norm that a word stands for."""
    return spec.norm if word == "norm" else word


def norm_parameters(path: str, kind: str, width: int, gain: float | None = None) -> dict[str, Parameter]:
    """The parameters of a norm; `gain` is where its weight starts, None for the kind's own start."""
    found = {}
    for parameter in NORM_KINDS[kind].parameters:
        start = gain if gain is not None and parameter.name == "weight" else parameter.start
        role = Role(kind="constant", start=start)
        found[f"{path}.{parameter.name}"] = Parameter(shape=parameter.shape(width), role=role)
    return found


def inner_width(spec: Spec, part: str) -> int:
    """Features that a norm inside a sublayer is over."""
    if part == "mid":
        return spec.mlp_width
    if part == "heads" or (part == "q" and spec.qk_norm == "width"):
        return spec.width
    return spec.head_width if spec.qk_norm == "head" else spec.key_heads * spec.head_width


def _check_alive(found: Mapping[str, Parameter]) -> None:
    """A branch whose gain and last matrix both start at 0 stays there: each waits for the other's gradient."""
    for name, parameter in found.items():
        if (
            parameter.role.kind == "constant"
            and parameter.role.start == 0.0
            and name.rsplit(".", 1)[-1].startswith("gain")
        ):
            step = name.rsplit(".", 1)[0]
            for other, matrix in found.items():
                if other.startswith(f"{step}.") and matrix.role.kind == "writer" and matrix.factor == 0.0:
                    raise ValueError(
                        f"{name} and {other} both start at 0: neither ever gets a gradient, and the branch is dead for "
                        "good; start one of them elsewhere"
                    )


def _around_start(spec: Spec) -> dict[str, Parameter]:
    """The embedding, and what is learned of positions."""
    found: dict[str, Parameter] = {}
    if spec.vocab is not None:
        found["embed.tokens.weight"] = Parameter(shape=(spec.vocab, spec.width), role=Role(kind="token_embedding"))
    if spec.features is not None:
        role = Role(kind="feature_embedding")
        found["embed.features.weight"] = Parameter(shape=(spec.width, spec.features), role=role)
        role = Role(kind="constant", start=0.0)
        found["embed.features.bias"] = Parameter(shape=(spec.width,), role=role)
    if spec.positions == "learned":
        role = Role(kind="position_embedding")
        found["embed.positions.weight"] = Parameter(shape=(spec.context, spec.width), role=role)
    if spec.positions == "relative":
        role = Role(kind="position_embedding")
        found["relative.weight"] = Parameter(shape=(RELATIVE_BUCKETS, spec.heads), role=role)
    return found


def _sublayer(spec: Spec, path: str, step: Step, call: Call) -> dict[str, Parameter]:
    """The matrices, biases and inner norms of one sublayer."""
    kind = step.kind(call)
    found: dict[str, Parameter] = {}
    shapes = _SHAPES[kind](spec)
    fused = sum(shapes[name][0] for name in ("q", "k", "v")) if "q" in shapes else None
    for name, shape in shapes.items():
        role = Role(
            kind="writer" if name in ("o", "down") else "matrix", fused=fused if name in ("q", "k", "v") else None
        )
        found[f"{path}.{name}.weight"] = Parameter(shape=shape, role=role, factor=_factor(spec, name, step))
        if spec.bias and kind != "moe":
            found[f"{path}.{name}.bias"] = Parameter(shape=shape[:1], role=Role(kind="bias", inputs=shape[1]))
    for part, word in step.inner(call).items():
        found |= norm_parameters(f"{path}.norm_{part}", norm_kind(spec, word), inner_width(spec, part))
    return found


def _attention(spec: Spec, memory: int) -> dict[str, Shape]:
    D, keys = spec.width, spec.key_heads * spec.head_width
    return {"q": (D, D), "k": (keys, memory), "v": (keys, memory), "o": (D, D)}


def _mlp(spec: Spec) -> dict[str, Shape]:
    D, F = spec.width, spec.mlp_width
    return {"up": (F, D), **({"gate": (F, D)} if spec.gated else {}), "down": (D, F)}


def _moe(spec: Spec) -> dict[str, Shape]:
    assert spec.experts is not None
    experts = {name: (spec.experts, *shape) for name, shape in _mlp(spec).items()}
    return {"router": (spec.experts, spec.width), **experts}


def _cross(spec: Spec) -> dict[str, Shape]:
    assert spec.encoder is not None
    return _attention(spec, spec.encoder.width)


_SHAPES = {"attn": lambda spec: _attention(spec, spec.width), "cross": _cross, "mlp": _mlp, "moe": _moe}

BUILT_IN = tuple(_SHAPES)
"""Sublayers that can be built from a spec alone; the others are given as modules."""


def _gain_start(step: Step, call: Call, spec: Spec) -> float | None:
    """What the formula says that a norm's gain starts at."""
    if call.start is None:
        return None
    kind = norm_kind(spec, call.word)
    if all(parameter.name != "weight" for parameter in NORM_KINDS[kind].parameters):
        raise ValueError(f"{step.formula} sets the start of a gain, and {kind} has none; leave out gain=")
    return number(call.start, step.symbols)


def _gain(gain: Gain, step: Step, width: int) -> Parameter:
    if gain.start is None:
        raise ValueError(f"{step.formula} does not say what its gain starts at; write gain(0) or gain(1e-5, 'channel')")
    start = number(gain.start, step.symbols)
    return Parameter(shape=(width,) if gain.channel else (), role=Role(kind="constant", start=start))


def _factor(spec: Spec, matrix: str, step: Step) -> float:
    """The paper's factor on a matrix, where the paper's rule is asked for."""
    initial = spec.placed.initial
    if spec.init != "paper" or initial is None or matrix not in initial.on:
        return 1.0
    return initial.factor_at(step.symbols)
