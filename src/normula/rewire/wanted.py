"""What each layer of a model is to do: a placement, brought to the sublayers and the depth that the layer has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from normula.formula import Formula, Placement
from normula.formula.text import expression
from normula.formula.tree import Call, Expr, rebuilt
from normula.formula.words import INNER, SUBLAYERS
from normula.read.plain import as_read
from normula.rewire.anatomy import Anatomy, Stack
from normula.rewire.errors import RewireError

ROLES: Mapping[str, str] = dict.fromkeys(("mlp", "moe"), "mlp")
"""Words that a formula of a whole layer may say for one another: what is no MLP mixes tokens."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One layer as it is to be: its formula, the depth symbols, its text in a reading.

    Attributes:
        numbers: for the index of each of its sublayers, which of the model's sublayers that is, as they run.
    """

    layer: Anatomy
    formula: Formula
    symbols: Mapping[str, int]
    text: str
    numbers: Mapping[int, int]


def check(placement: Placement) -> None:
    """Only placements with one stream, and without a schedule, can be given to a model that exists.

    Raises:
        RewireError: it is another.
    """
    if placement.streams or placement.operator:
        raise RewireError(
            f"{placement.name} needs several streams, and a model that exists has the one that its code carries; "
            "build such a model with normula.build."
        )
    if any("step" in formula.symbols for formula in placement.formulas):
        raise RewireError(
            f"{placement.name} changes with the training step, which a model that exists does not count; "
            "build such a model with normula.build."
        )


def wanted(placement: Placement, stack: Stack, sides: Mapping[str, int]) -> tuple[Wanted, ...]:
    """The layers of a stream as they are to be.

    Args:
        placement: with one stream.
        stack: the stream.
        sides: layers of an encoder and its decoder, `Le` and `Ld`.

    Raises:
        RewireError: a layer has other sublayers than the formula, or its depth leaves a number without a value.
    """
    total = sum(len(layer.sublayers) for layer in stack.layers)
    result = []
    for layer in stack.layers:
        formula = _formula(placement, layer, len(stack.layers))
        symbols = {**sides, "l": layer.number, "L": len(stack.layers), "S": total}
        try:
            text = as_read(formula, symbols)
        except ValueError as error:
            raise RewireError(f"{placement.name} cannot be given to layer {layer.number}: {error}") from None
        result.append(Wanted(layer, formula, symbols, text, _numbers(formula, layer)))
    return tuple(result)


def _formula(placement: Placement, layer: Anatomy, layers: int) -> Formula:
    formula = placement.formula_at(layer.number, layers)
    if formula.is_step:
        return formula.layer(layer.words)
    left = list(layer.words)
    words: dict[int, str] = {}
    calls = [call for call in formula.calls if call.word in SUBLAYERS]
    for exact in (True, False):
        for call in calls:
            fitting = [word for word in left if word == call.word or (not exact and _role(word) == _role(call.word))]
            if call.index not in words and fitting:
                words[call.index] = fitting[0]
                left.remove(fitting[0])
    if left or len(words) < len(calls):
        raise RewireError(
            f"{placement.name} is a formula of a layer with {' and '.join(formula.sublayers)}, and layer "
            f"{layer.number} ({layer.path or 'in the open'}) has {' and '.join(layer.words) or 'no sublayer'}."
        )

    def change(part: Expr) -> Expr:
        if isinstance(part, Call) and part.index in words and part.word in SUBLAYERS:
            word = words[part.index]
            return replace(part, word=word, inner=tuple(one for one in part.inner if one[0] in INNER.get(word, ())))
        return part

    return Formula("; ".join(f"{s.name} = {expression(rebuilt(s.value, change))}" for s in formula.tree.statements))


def _role(word: str) -> str:
    return ROLES.get(word, "mixer")


def _numbers(formula: Formula, layer: Anatomy) -> dict[int, int]:
    """The sublayers of a formula in the layer: the first with a word is the first that runs with it."""
    left = list(enumerate(layer.words))
    found: dict[int, int] = {}
    for call in formula.calls:
        if call.word in SUBLAYERS:
            place = next(place for place, word in left if word == call.word)
            left.remove((place, call.word))
            found[call.index] = place
    return found
