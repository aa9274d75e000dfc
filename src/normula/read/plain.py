"""A catalogue entry in the form that a reading has.

A reading has no start of a gain and no depth symbol, only numbers; and what is normalised inside a sublayer stands
apart. So an entry is brought to the same form: at the layer's own depth, with bare gains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

from normula.catalog import Entry
from normula.formula import Formula
from normula.formula.errors import FormulaError
from normula.formula.run import depth_numbers, number
from normula.formula.text import expression
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Number, Tree, rebuilt
from normula.formula.words import FUNCTIONS, INNER, NORMS, STREAM
from normula.read.spell import spelled_number

Calling: TypeAlias = tuple[tuple[str, str], ...]
"""What each stream of an entry is called in a reading."""

Depth: TypeAlias = tuple[tuple[str, int], ...]
"""The values of depth symbols, and of `step`, where they are known."""


def callings(entry: Entry, streams: tuple[str, ...]) -> list[Calling]:
    """The ways to call an entry's streams as a reading does: which of several is x is the reader's choice."""
    own = (STREAM, *(name for name, _ in entry.placement.streams))
    return [tuple(zip(own, names, strict=True)) for names in permutations((STREAM, *streams))]


def around(entry: Entry, called: Calling) -> tuple[dict[str, str], str]:
    """What an entry's streams beside x start as, and what closes them, under other names; nothing for one stream."""
    placement, names = entry.placement, dict(called)
    if not placement.streams:
        return {}, ""
    starts = {names[name]: str(start) for name, start in ((STREAM, STREAM), *placement.streams)}
    closing = str(Formula(_at(placement.final, {}, called)))
    return {name: start for name, start in starts.items() if name != STREAM}, closing


@lru_cache(maxsize=4096)
def plain(entry: Entry, words: tuple[str, ...], depth: Depth, called: Calling) -> str:
    """An entry's formula of a whole layer as a reading has it; empty where its depth is not known.

    Args:
        entry: of the catalogue.
        words: the sublayers that the layer has, in running order.
        depth: `l` and `L`, and what else is known.
        called: its streams' names.
    """
    known = dict(depth)
    formula = entry.placement.formula_at(known["l"], known["L"])
    try:
        formula = formula.layer(words) if words else formula
        return str(Formula(_at(formula, {**known, "S": known["L"] * max(len(words), 1), "s": 1}, called)))
    except (FormulaError, ValueError):
        return ""


def as_read(formula: Formula, depth: Mapping[str, int]) -> str:
    """The text that a reading gives of a layer with this formula.

    Raises:
        ValueError: a number in it has no value at this depth.
    """
    text = str(Formula(_at(formula, depth)))
    return str(Formula(_NUMBERED.sub("gain", text)))


_NUMBERED = re.compile(r"\b\d+(?:\.\d+)?\*gain\b(?!\()")
"""A number times a learned factor, which is a learned factor."""


def _at(formula: Formula, depth: Mapping[str, int], called: Calling = ()) -> str:
    """The text of a formula at a depth, its gains bare, its norms of any kind, its sublayers plain inside."""
    names: dict[str, Expr] = {name: Name(new) for name, new in called}
    names |= {name: Number(Fraction(value)) for name, value in depth.items() if name == "step"}
    tree = Tree(
        tuple(
            Assign(dict(called).get(one.name, one.name), rebuilt(one.value, lambda p: _renamed(p, names)))
            for one in formula.tree.statements
        )
    )
    learned = {one.name for one in tree.statements if isinstance(one.value, Gain)}
    numbers: dict[Expr, Expr] = {part: Number(Fraction(number(part, depth))) for part in depth_numbers(tree)}

    def change(part: Expr) -> Expr:
        if isinstance(part, Binary) and part.op == "/" and isinstance(part.right, Number):
            return Binary("*", Number(1 / part.right.value), part.left)
        if isinstance(part, Gain):
            return Gain(None)
        if isinstance(part, Call) and part.word in FUNCTIONS and _is_learned(part.argument, learned):
            return part.argument  # a function of a learned factor is a learned factor
        if isinstance(part, Call):
            word = "norm" if part.word in NORMS and part.word not in ("dyt", "derf") else part.word
            return replace(part, word=word, start=None, inner=() if part.word in INNER else part.inner)
        return part

    values = [(one.name, rebuilt(one.value, lambda p: numbers.get(p, p))) for one in tree.statements]
    values = [(name, rebuilt(rebuilt(value, change), _rounded)) for name, value in values]
    return "; ".join(f"{name} = {expression(value)}" for name, value in values)


def _renamed(part: Expr, names: Mapping[str, Expr]) -> Expr:
    return names.get(part.name, part) if isinstance(part, Name) else part


def _is_learned(part: Expr, learned: Set[str]) -> bool:
    return isinstance(part, Gain) or (isinstance(part, Name) and part.name in learned)


def _rounded(part: Expr) -> Expr:
    """A number with as many digits as a measured one."""
    return Number(Fraction(spelled_number(float(part.value)))) if isinstance(part, Number) else part
