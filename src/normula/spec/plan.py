"""A spec written out: every step of every layer, and every parameter by name, shape and start.

Names say the site: `layers.3.attn.norm_in.weight` is the norm before the attention of the fourth layer,
`layers.3.attn.f.q.weight` the queries' matrix of that attention.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from normula.formula import Formula
from normula.formula.run import Runner, number
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS, STEP, SUBLAYERS
from normula.spec.kinds import NORM_KINDS
from normula.spec.role import Role
from normula.spec.spec import Spec

BUILT_IN = ("attn", "mlp")
"""Sublayers that can be built from a spec alone; the others are given as modules."""

INNER_SITES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "qk": (("attn", "q"), ("attn", "k")),
    "qkv": (("attn", "q"), ("attn", "k"), ("attn", "v")),
    "out": (("attn", "heads"),),
    "mid": (("mlp", "mid"),),
}
"""What an inner site of the notation is made of: the sublayer, and what is normalised in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An array of the network: its shape, what it does, and a factor on its first draw."""

    shape: tuple[int, ...]
    role: Role
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A formula at one place of the stack.

    Attributes:
        prefix: where its parameters live, such as `layers.3.attn`; a layer's formula has `layers.3`.
        formula: what it does.
        word: the sublayer that `f` stands for; None where the formula names its own.
        symbols: values of the depth symbols.
    """

    prefix: str
    formula: Formula
    word: str | None
    symbols: Mapping[str, float]

    def path(self, index: int) -> str:
        """Where the call or gain with this index has its parameters."""
        return f"{self.prefix}.{self.formula.sites[index]}"

    @property
    def sublayers(self) -> tuple[Call, ...]:
        """The calls that run a sublayer."""
        return tuple(call for call in self.formula.calls if call.word in SUBLAYERS)

    def kind(self, call: Call) -> str:
        """The sublayer that a call runs."""
        assert call.word in SUBLAYERS
        return call.word if call.word != STEP else str(self.word)

    def inner(self, call: Call) -> dict[str, str]:
        """What is normalised inside a call's sublayer, and by which word."""
        kind = self.kind(call)
        return {part: norm for site, norm in call.inner for owner, part in INNER_SITES[site] if owner == kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole network: what comes before, the steps of each layer, what comes after, all parameters."""

    spec: Spec
    embed: Step
    starts: tuple[tuple[str, Step], ...]
    layers: tuple[tuple[Step, ...], ...]
    final: Step
    parameters: Mapping[str, Parameter]
    sublayers_total: int


def plan(spec: Spec, given: Collection[str] = ()) -> Plan:
    """Write a spec out.

    Args:
        spec: what to build.
        given: sublayers that come as modules of their own; their parameters are not in the plan.

    Raises:
        ValueError: the formula cannot be built with these sublayers, or a number in it is not finite.
    """
    placed = spec.placed
    total = sum(len(_words(spec, placed.formula_at(l, spec.layers))) for l in range(1, spec.layers + 1))
    symbols = {"L": spec.layers, "S": total}
    layers = []
    count = 0
    for l in range(1, spec.layers + 1):
        formula = placed.formula_at(l, spec.layers)
        _check_words(_words(spec, formula), given)
        steps = tuple(_steps(spec, formula, l, count, symbols))
        count += len(_words(spec, formula))
        layers.append(steps)
    embed, final = (
        Step(prefix=prefix, formula=formula, word=None, symbols=symbols)
        for prefix, formula in (("embed", placed.embed), ("final", placed.final))
    )
    starts = tuple(
        (name, Step(prefix=f"start_{name}", formula=start, word=None, symbols=symbols))
        for name, start in placed.streams
    )
    steps = (embed, *(step for _, step in starts), *(step for layer in layers for step in layer), final)
    for step in steps:
        _check_numbers(step)
    parameters = _parameters(spec, steps, given)
    return Plan(
        spec=spec,
        embed=embed,
        starts=starts,
        layers=tuple(layers),
        final=final,
        parameters=parameters,
        sublayers_total=total,
    )


def _words(spec: Spec, formula: Formula) -> tuple[str, ...]:
    return spec.sublayers if formula.is_step else formula.sublayers


def _steps(spec: Spec, formula: Formula, l: int, before: int, symbols: Mapping[str, float]) -> list[Step]:
    words = _words(spec, formula)
    _check_inner(formula, words)
    if not formula.is_step:
        if "s" in formula.symbols:
            raise ValueError(f"{formula} describes a whole layer, where s has no meaning; write it with l")
        return [Step(prefix=f"layers.{l - 1}", formula=formula, word=None, symbols={**symbols, "l": l})]
    steps: list[Step] = []
    for place, word in enumerate(words, start=1):
        again = words[:place].count(word)
        prefix = f"layers.{l - 1}.{word}" + (f"_{again}" if again > 1 else "")
        steps.append(Step(prefix=prefix, formula=formula, word=word, symbols={**symbols, "l": l, "s": before + place}))
    return steps


def _check_words(words: tuple[str, ...], given: Collection[str]) -> None:
    for word in words:
        if word not in BUILT_IN and word not in given:
            raise ValueError(
                f"{word} is not built from a spec ({', '.join(BUILT_IN)} are); "
                f"give a module for it, such as modules={{{word!r}: lambda layer: MyModule()}}"
            )


def _check_inner(formula: Formula, words: tuple[str, ...]) -> None:
    """Every inner site must exist in some sublayer: a setting without effect is refused."""
    for call in formula.calls:
        kinds = words if call.word == STEP else (call.word,)
        for site, _ in call.inner:
            for owner in {owner for owner, _ in INNER_SITES[site]} - set(kinds):
                raise ValueError(f"{site} is a site inside {owner}, and the sublayers are {', '.join(kinds)}")


def _check_numbers(step: Step) -> None:
    """Every number of a step must be finite at its depth, with the gains at their start."""

    def start(gain: Gain) -> float:
        return 1.0 if gain.start is None else number(gain.start, step.symbols)

    Runner(step.symbols, lambda call, value: value, start).run(
        step.formula.tree, dict.fromkeys(step.formula.streams, 1.0)
    )


def _parameters(spec: Spec, steps: tuple[Step, ...], given: Collection[str]) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    if spec.vocab is not None:
        found["embed.tokens.weight"] = Parameter(shape=(spec.vocab, spec.width), role=Role(kind="token_embedding"))
        found["embed.positions.weight"] = Parameter(
            shape=(spec.context, spec.width), role=Role(kind="position_embedding")
        )
    for step in steps:
        for call in step.formula.calls:
            path = step.path(call.index)
            if call.word in NORMS:
                found |= _norm(path, norm_kind(spec, call.word), spec.width, _gain_start(step, call, spec))
            elif step.kind(call) not in given:
                found |= _sublayer(spec, path, step, call)
        for gain in step.formula.gains:
            found[step.path(gain.index)] = _gain(gain, step, spec.width)
    out = spec.classes or spec.vocab
    if out is not None:
        found["head.weight"] = Parameter(shape=(out, spec.width), role=Role(kind="head"))
    return found


def norm_kind(spec: Spec, word: str) -> str:
    """The kind of norm that a word stands for."""
    return spec.norm if word == "norm" else word


def _norm(path: str, kind: str, width: int, gain: float | None = None) -> dict[str, Parameter]:
    """The parameters of a norm; `gain` is where its weight starts, None for the kind's own start."""
    found = {}
    for parameter in NORM_KINDS[kind].parameters:
        start = gain if gain is not None and parameter.name == "weight" else parameter.start
        found[f"{path}.{parameter.name}"] = Parameter(
            shape=parameter.shape(width), role=Role(kind="constant", start=start)
        )
    return found


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


def _sublayer(spec: Spec, path: str, step: Step, call: Call) -> dict[str, Parameter]:
    """The matrices, biases and inner norms of one sublayer."""
    D, F = spec.width, spec.mlp_width
    kind = step.kind(call)
    shapes: dict[str, tuple[int, int]] = {}
    if kind == "attn":
        shapes = {"q": (D, D), "k": (D, D), "v": (D, D), "o": (D, D)}
    elif kind == "mlp":
        shapes = {"up": (F, D), "down": (D, F)}
    found: dict[str, Parameter] = {}
    for name, shape in shapes.items():
        role = Role(kind="writer" if name in ("o", "down") else "matrix")
        found[f"{path}.{name}.weight"] = Parameter(shape=shape, role=role, factor=_factor(spec, name, step))
        if spec.bias:
            found[f"{path}.{name}.bias"] = Parameter(shape=shape[:1], role=Role(kind="bias", inputs=shape[1]))
    for part, word in step.inner(call).items():
        found |= _norm(f"{path}.norm_{part}", norm_kind(spec, word), F if part == "mid" else D)
    return found


def _factor(spec: Spec, matrix: str, step: Step) -> float:
    """The paper's factor on a matrix, where the paper's rule is asked for."""
    initial = spec.placed.initial
    if spec.init != "paper" or initial is None or matrix not in initial.on:
        return 1.0
    return initial.factor_at(step.symbols)
