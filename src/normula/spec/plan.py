"""A spec written out: every step of every layer, and every parameter by name, shape and start.

Names say the site: `layers.3.attn.norm_in.weight` is the norm before the attention of the fourth layer,
`layers.3.attn.f.q.weight` the queries' matrix of that attention.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from normula.formula import Formula
from normula.formula.open import changes_stream, closing_norm
from normula.formula.run import Runner, number
from normula.formula.tree import Call, Gain
from normula.formula.words import INNER, STEP
from normula.spec.parameters import BUILT_IN, Parameter, norm_kind, parameters
from normula.spec.spec import Spec
from normula.spec.step import Step

__all__ = ["BUILT_IN", "Parameter", "Plan", "Step", "norm_kind", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole network: what comes before, the steps of each layer, what comes after, all parameters.

    `encoder` is the plan of the encoder, whose parameters are in `parameters` too, under `encoder.`.
    """

    spec: Spec
    encoder: Plan | None
    embed: Step
    starts: tuple[tuple[str, Step], ...]
    layers: tuple[tuple[Step, ...], ...]
    final: Step
    parameters: Mapping[str, Parameter]
    sublayers_total: int


def plan(spec: Spec, given: Collection[str] = (), decoder_layers: int | None = None) -> Plan:
    """Write a spec out.

    Args:
        spec: what to build.
        given: sublayers that come as modules of their own; their parameters are not in the plan.
        decoder_layers: of the decoder that this stack is the encoder of.

    Raises:
        ValueError: the formula cannot be built with these sublayers, or a number in it is not finite.
    """
    placed = spec.placed
    total = sum(len(_words(spec, placed.formula_at(l, spec.layers))) for l in range(1, spec.layers + 1))
    symbols: dict[str, float] = {"L": spec.layers, "S": total, "step": 0.0}
    if spec.encoder is not None:
        symbols |= {"Ld": spec.layers, "Le": spec.encoder.layers}
    elif decoder_layers is not None:
        symbols |= {"Ld": decoder_layers, "Le": spec.layers}
    _check_depths(spec, symbols)
    encoder = None if spec.encoder is None else plan(spec.encoder, given, spec.layers)
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
    own = parameters(spec, steps, given, decoder_layers is not None)
    if encoder is not None:
        own |= {f"encoder.{name}": parameter for name, parameter in encoder.parameters.items()}
    return Plan(
        spec=spec,
        encoder=encoder,
        embed=embed,
        starts=starts,
        layers=tuple(layers),
        final=final,
        parameters=own,
        sublayers_total=total,
    )


def ending(written: Plan) -> tuple[Step, Call] | None:
    """The norm that all that leaves the stack has gone through last, and its step, if there is one."""
    for step in (written.final, written.layers[-1][-1]):
        if changes_stream(step.formula.tree):
            norm = closing_norm(step.formula.tree)
            return None if norm is None else (step, norm)
    return None


def point_name(step: Step, place: int) -> str:
    """What a statement that makes a new x is called in a measurement: its sublayer, or its number in the layer."""
    return step.prefix.split(".")[-1] if step.word else str(place)


def _check_depths(spec: Spec, symbols: Mapping[str, float]) -> None:
    """Constants of an encoder-decoder need both depths."""
    for formula in spec.placed.formulas:
        if missing := sorted({"Ld", "Le"} & set(formula.symbols) - set(symbols)):
            raise ValueError(
                f"{formula} has {' and '.join(missing)}, depths of the two sides of an encoder-decoder, and this stack "
                "is alone; give its spec an encoder, or make it the encoder of one"
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
            if all(site not in INNER.get(kind, ()) for kind in kinds):
                owners = [word for word in INNER if site in INNER[word] and word != STEP]
                raise ValueError(
                    f"{site} is a site inside {' or '.join(owners)}, and the sublayers are {', '.join(kinds)}"
                )


def _check_numbers(step: Step) -> None:
    """Every number of a step must be finite at its depth, with the gains at their start."""

    def start(gain: Gain) -> float:
        return 1.0 if gain.start is None else number(gain.start, step.symbols)

    Runner(step.symbols, lambda call, value: value, start).run(
        step.formula.tree, dict.fromkeys(step.formula.streams, 1.0)
    )
