"""What the catalogue calls a layer that was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from normula.catalog import Entry, entries
from normula.formula import Formula
from normula.formula.run import number
from normula.formula.tree import Call, Number, walk
from normula.read.plain import Depth, around, callings, plain
from normula.record.reading import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All layers of a stream, as they were read.

    Attributes:
        texts: the formula of each.
        embed, final: whether a norm stands before the first, and after the last.
        streams: what each stream beside x starts as.
        closing: what comes out of several streams after the last layer.
        sides: how many layers an encoder and a decoder have, `Le` and `Ld`, where it is one of them.
    """

    texts: tuple[str, ...]
    embed: bool
    final: bool
    streams: tuple[tuple[str, str], ...] = ()
    closing: str = ""
    sides: Depth = ()


def names(stack: Stack, layer: int, inner: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a layer; those with these norms around and inside come alone, where there are any.

    An entry whose first layers have a formula of their own, or that changes in training, is a name only where it is
    what all layers of the stack are.

    Args:
        stack: all layers.
        layer: which of them, from 1.
        inner: what is normalised inside its sublayers.

    >>> pre = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
    >>> names(Stack(texts=(pre,) * 6, embed=False, final=True), 2, ())
    ('pre', 'gpt2')
    """
    found = [one for one in entries() if one.placement.operator is None and _is_named(one, stack, layer)]
    attends = any(word in stack.texts[layer - 1] for word in ("attn(", "cross("))
    within = {SITES[word] for word in inner if word in SITES and (attends or word == "mid-mlp")}
    found = [one for one in found if _inside(one) == within] or [one for one in found if not _inside(one)] or found
    found = [one for one in found if (str(one.placement.final) != "x") == stack.final] or found
    found = [one for one in found if (str(one.placement.embed) != "x") == stack.embed] or found
    if len(set(stack.texts)) == 1:
        found = [one for one in found if not one.placement.ranges] or found
    return tuple(one.name for one in found)


SITES = {"qk": "qk", "attn-out": "out", "mid-mlp": "mid"}
"""What the notation calls the sites inside a sublayer that a reading names."""


def _inside(entry: Entry) -> set[str]:
    """The sites inside sublayers that hold a norm; that of the values is not told apart."""
    return {site.removesuffix("v") for call in entry.placement.formula.calls for site, _ in call.inner}


def _is_named(entry: Entry, stack: Stack, layer: int) -> bool:
    if len(entry.placement.streams) != len(stack.streams) or stack.texts[layer - 1] == UNKNOWN:
        return False
    if "step" in entry.placement.formula.symbols:
        return any(_is_whole(entry, stack, (("step", made),)) for made in _counts(entry, stack))
    return _is_called(entry, stack, layer) and (not entry.placement.ranges or _is_whole(entry, stack))


def _is_whole(entry: Entry, stack: Stack, made: Depth = ()) -> bool:
    """Whether an entry is what all layers are."""
    return all(_is_called(entry, stack, layer, made) for layer in range(1, len(stack.texts) + 1))


def _is_called(entry: Entry, stack: Stack, layer: int, made: Depth = ()) -> bool:
    """Whether an entry is what a layer is, whatever its streams are called."""
    text = stack.texts[layer - 1]
    depth = (("l", layer), ("L", len(stack.texts)), *stack.sides, *made)
    return text != UNKNOWN and any(
        plain(entry, Formula(text).sublayers, depth, called) == text
        and around(entry, called) == (dict(stack.streams), stack.closing if stack.streams else "")
        for called in callings(entry, tuple(name for name, _ in stack.streams))
    )


def _counts(entry: Entry, stack: Stack) -> Iterator[int]:
    """The numbers of updates after which a factor of an entry is one of those read; none where all layers are alike."""
    values = [part for one in entry.placement.formula.tree.statements for part in walk(one.value)]
    factors = [part for part in values if isinstance(part, Call) and part.word == "ramp"]
    for layer, text in enumerate(stack.texts if len(set(stack.texts)) > 1 else (), start=1):
        for factor in factors:
            slope = number(factor.argument, {"l": layer, "L": len(stack.texts), "step": 1})
            yield from (round(value / slope) for value in fixed_numbers(text) if 0 < value < 1)


def fixed_numbers(text: str) -> tuple[float, ...]:
    """The fixed numbers in a formula, other than the signs of its terms.

    >>> fixed_numbers("x = x + 0.3 * attn(norm(x))")
    (0.3,)
    """
    numbers = {
        float(part.value)
        for statement in (() if text == UNKNOWN else Formula(text).tree.statements)
        for part in walk(statement.value)
        if isinstance(part, Number)
    }
    return tuple(sorted(numbers - {1.0}))
