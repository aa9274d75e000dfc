"""What each layer of a model is to do: a placement, brought to the sublayers and the depth that the layer has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from normula.formula import Formula, Placement
from normula.formula.text import expression
from normula.formula.tree import Binary, Call, Expr, rebuilt
from normula.formula.words import INNER, NORMS, STREAM, SUBLAYERS
from normula.read.plain import as_read
from normula.rewire.anatomy import Anatomy, Stack
from normula.rewire.errors import RewireError, UnfitError
from normula.spec.step import Step

ROLES: Mapping[str, str] = dict.fromkeys(("mlp", "moe"), "mlp")
"""Words that a formula of a whole layer may say for one another: what is no MLP mixes tokens."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One layer as it is to be: the steps that its formula makes, and its text in a reading.

    Attributes:
        layer: as it is.
        steps: in order, one for each sublayer, or one for the whole layer.
        numbers: for each step and the index of each of its sublayers, which of the model's that is, as they run.
        text: in a reading.
        same: this and other texts of the same: where a sublayer subtracts what it reads, `x + pool(x)` is `pool(x)`.
    """

    layer: Anatomy
    steps: tuple[Step, ...]
    numbers: tuple[Mapping[int, int], ...]
    text: str
    same: Set[str]

    @property
    def inner(self) -> dict[tuple[int, str], str]:
        """What is to be normalised inside, by the number of the sublayer and the part, and by which word."""
        return {
            (numbers[call.index], part): word
            for step, numbers in zip(self.steps, self.numbers, strict=True)
            for call in step.sublayers
            for part, word in step.inner(call).items()
        }


def site(step: Step, index: int) -> str:
    """What the place of a call or gain is called in its layer, such as `attn.norm_in`."""
    return step.path(index).lstrip(".")


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
    before = 0
    for layer in stack.layers:
        formula = placement.formula_at(layer.number, len(stack.layers))
        if missing := sorted({"Ld", "Le"} & formula.symbols - sides.keys()):
            raise UnfitError(
                f"{placement.name} has {' and '.join(missing)}, depths of the two sides of an encoder-decoder, "
                "and this model is none."
            )
        symbols = {**sides, "l": layer.number, "L": len(stack.layers), "S": total}
        try:
            whole = formula.layer(layer.words) if formula.is_step else _with_words(placement, formula, layer)
            text = as_read(whole, symbols)
            same = {text, *(as_read(one, symbols) for one in _subtracted(whole, layer))}
        except UnfitError:
            raise
        except ValueError as error:
            raise UnfitError(f"{placement.name} cannot be given to layer {layer.number}: {error}") from None
        steps = _steps(formula, whole, layer, symbols, before)
        result.append(Wanted(layer, steps, tuple(_numbers(step, layer) for step in steps), text, same))
        before += len(layer.sublayers)
    return tuple(result)


def _steps(
    formula: Formula, whole: Formula, layer: Anatomy, symbols: Mapping[str, int], before: int
) -> tuple[Step, ...]:
    """A step for each sublayer, or one for the layer."""
    if not formula.is_step:
        return (Step(prefix="", formula=whole, word=None, symbols=symbols),)
    steps = []
    for place, word in enumerate(layer.words, start=1):
        again = layer.words[:place].count(word)
        prefix = f"{word}_{again}" if again > 1 else word
        steps.append(Step(prefix=prefix, formula=formula, word=word, symbols={**symbols, "s": before + place}))
    return tuple(steps)


def _with_words(placement: Placement, formula: Formula, layer: Anatomy) -> Formula:
    """A layer's formula with the words that the layer has for its sublayers."""
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
        raise UnfitError(
            f"{placement.name} is a formula of a layer with {' and '.join(formula.sublayers)}, and layer "
            f"{layer.number} ({layer.path or 'in the open'}) has {' and '.join(layer.words) or 'no sublayer'}."
        )

    def change(part: Expr) -> Expr:
        if isinstance(part, Call) and part.index in words and part.word in SUBLAYERS:
            word = words[part.index]
            return replace(part, word=word, inner=tuple(one for one in part.inner if one[0] in INNER.get(word, ())))
        return part

    return _changed(formula, change)


def _changed(formula: Formula, change: Callable[[Expr], Expr]) -> Formula:
    """A formula with every part of its expressions changed."""
    return Formula("; ".join(f"{s.name} = {expression(rebuilt(s.value, change))}" for s in formula.tree.statements))


def _subtracted(whole: Formula, layer: Anatomy) -> Iterator[Formula]:
    """A layer's formula with what its sublayers subtract; but a reading has `pool(n) - n` of a norm as `pool(n)`."""
    less = {one.word for one in layer.sublayers if one.subtracts}
    names = {one.name for one in whole.tree.statements if isinstance(one.value, Call) and one.value.word in NORMS}
    for normed in (names - {STREAM}, frozenset[str]()) if less else ():

        def change(part: Expr, normed: Set[str] = normed) -> Expr:
            if not (isinstance(part, Call) and part.word in less):
                return part
            given = part.argument
            is_norm = given.word in NORMS if isinstance(given, Call) else getattr(given, "name", "") in normed
            return part if is_norm else Binary("-", part, given)

        yield _changed(whole, change)


def _role(word: str) -> str:
    return ROLES.get(word, "mixer")


def _numbers(step: Step, layer: Anatomy) -> dict[int, int]:
    """The sublayers of a step in the layer: the first with a word is the first that runs with it."""
    if step.word is not None:
        runs = [place for place, word in enumerate(layer.words) if word == step.word]
        _, _, again = step.prefix.rpartition("_")
        place = runs[int(again) - 1 if again.isdigit() else 0]
        return {call.index: place for call in step.sublayers}
    left = list(enumerate(layer.words))
    found: dict[int, int] = {}
    for call in step.sublayers:
        place = next(place for place, word in left if word == call.word)
        left.remove((place, call.word))
        found[call.index] = place
    return found
