"""What the catalogue calls a layer that was read.

A reading has no start of a gain and no depth symbol, only numbers; and what is normalised inside a sublayer stands
apart. So an entry is brought to the same form: at the layer's own depth, with bare gains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from normula.catalog import Entry, entries
from normula.formula import Formula
from normula.formula.errors import FormulaError
from normula.formula.run import depth_numbers, number
from normula.formula.text import expression
from normula.formula.tree import Binary, Call, Expr, Gain, Number, rebuilt
from normula.formula.words import INNER, NORMS
from normula.read.spell import spelled_number


def names(text: str, *, layer: int, layers: int, embed: bool, final: bool, inner: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a formula; those with these norms around and inside come alone, where there are any.

    >>> names("x = x + attn(norm(x)); x = x + mlp(norm(x))", layer=2, layers=6, embed=False, final=True, inner=())
    ('pre', 'gpt2')
    """
    words = Formula(text).sublayers
    found = [one for one in entries() if one.placement.operator is None and not one.placement.streams]
    found = [one for one in found if _plain(one, words, layer, layers) == text]
    within = {SITES[word] for word in inner if word in SITES}
    found = [one for one in found if _inside(one) == within] or [one for one in found if not _inside(one)] or found
    found = [one for one in found if (str(one.placement.final) != "x") == final] or found
    found = [one for one in found if (str(one.placement.embed) != "x") == embed] or found
    found = [one for one in found if not one.placement.ranges] or found
    return tuple(one.name for one in found)


SITES = {"qk": "qk", "attn-out": "out", "mid-mlp": "mid"}
"""What the notation calls the sites inside a sublayer that a reading names."""


def _inside(entry: Entry) -> set[str]:
    """The sites inside sublayers that hold a norm; that of the values is not told apart."""
    return {site.removesuffix("v") for call in entry.placement.formula.calls for site, _ in call.inner}


@lru_cache(maxsize=1024)
def _plain(entry: Entry, words: tuple[str, ...], layer: int, layers: int) -> str:
    """An entry's formula of a whole layer as a reading has it."""
    formula = entry.placement.formula
    try:
        formula = formula.layer(words) if words else formula
        depth = {"l": layer, "L": layers, "S": layers * max(len(words), 1), "s": 1, "step": 0}
        return str(Formula(_at(formula, depth)))
    except (FormulaError, ValueError):
        return ""


def _at(formula: Formula, depth: Mapping[str, float]) -> str:
    """The text of a formula at a depth, its gains bare, its norms of any kind, its sublayers plain inside."""
    numbers: dict[Expr, Expr] = {part: Number(Fraction(number(part, depth))) for part in depth_numbers(formula.tree)}

    def change(part: Expr) -> Expr:
        if isinstance(part, Binary) and part.op == "/" and isinstance(part.right, Number):
            return Binary("*", Number(1 / part.right.value), part.left)
        if isinstance(part, Gain):
            return Gain(None)
        if isinstance(part, Call):
            word = "norm" if part.word in NORMS and part.word not in ("dyt", "derf") else part.word
            return replace(part, word=word, start=None, inner=() if part.word in INNER else part.inner)
        return part

    values = [(one.name, rebuilt(one.value, lambda p: numbers.get(p, p))) for one in formula.tree.statements]
    values = [(name, rebuilt(rebuilt(value, change), _rounded)) for name, value in values]
    return "; ".join(f"{name} = {expression(value)}" for name, value in values)


def _rounded(part: Expr) -> Expr:
    """A number with as many digits as a measured one."""
    return Number(Fraction(spelled_number(float(part.value)))) if isinstance(part, Number) else part
