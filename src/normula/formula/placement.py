"""Here lives Placement: a formula and what surrounds it in a stack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from normula.formula.errors import nearest
from normula.formula.formula import Formula
from normula.formula.parse import parse_number
from normula.formula.run import number
from normula.formula.tree import Call
from normula.formula.words import NAME, NORMS, RESERVED, STREAM

MATRICES = ("q", "k", "v", "o", "up", "down")
"""Matrices of the sublayers: queries, keys, values and output of attention; the MLP's two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """A paper's rule for initial weights: a named rule, and a factor on some of the matrices.

    Args:
        rule: `xavier`, `normal`, `torch` or `scaled`.
        factor: a number made of depth symbols, such as DeepNorm's `(8*L)**(-1/4)`; None for no factor.
        on: the matrices that it multiplies, among q, k, v, o, up, down.

    Raises:
        ValueError: a factor without matrices, or matrices without a factor, or an unknown matrix.
    """

    rule: str
    factor: str | None = None
    on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", tuple(self.on))
        if (self.factor is None) != (not self.on):
            raise ValueError("a factor and the matrices that it multiplies go together")
        for matrix in self.on:
            if matrix not in MATRICES:
                raise ValueError(f"{matrix!r} is not a matrix of a sublayer; they are {', '.join(MATRICES)}")
        if self.factor is not None:
            parse_number(self.factor)

    def factor_at(self, symbols: Mapping[str, float]) -> float:
        """The factor at these depths; 1 where there is none."""
        return 1.0 if self.factor is None else number(parse_number(self.factor), symbols)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The first layers of a stack, with a formula of their own.

    Args:
        until: a number made of depth symbols; layers 1 to its whole part have the formula.
        formula: what these layers do.
    """

    until: str
    formula: Formula

    def __post_init__(self) -> None:
        object.__setattr__(self, "formula", _formula(self.formula))
        parse_number(self.until)

    def holds(self, layer: int, layers: int) -> bool:
        """Whether a layer, counted from 1, belongs to the range."""
        return layer <= math.floor(number(parse_number(self.until), {"L": layers}) + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A formula, and what happens to the stream before and after the stack.

    Two placements are equal if they compute the same and start from the same weights; the name is not compared.

        >>> Placement(name="mine", formula="x + f(norm(x))", final="norm(x)").final
        Formula('norm(x)')

    Args:
        name: what it is called.
        formula: one step with `f`, or a whole layer with named sublayers.
        embed: what happens to x once before the stack: `x` or `norm(x)`.
        final: what comes out of the stack, from x and the other streams: `x`, `norm(x)`, `x + norm(d)`.
        streams: other streams and what they start as, from the embedded x: `{"d": "x"}`.
        ranges: first layers with formulas of their own.
        initial: the paper's rule for initial weights, where there is one.
        operator: a registered operator that holds the streams; the formula is then the branch, such as `f(norm(x))`.

    Raises:
        FormulaError: a text is not a formula.
        ValueError: a formula without a sublayer, a sublayer where none can be, a stream that is not declared, or
            one that no formula reads.
    """

    name: str = field(compare=False)
    formula: Formula
    embed: Formula = field(default_factory=lambda: Formula(STREAM))
    final: Formula = field(default_factory=lambda: Formula(STREAM))
    streams: tuple[tuple[str, Formula], ...] = ()
    ranges: tuple[Range, ...] = ()
    initial: InitialWeights | None = None
    operator: str | None = None

    def __post_init__(self) -> None:
        for name in ("formula", "embed", "final"):
            object.__setattr__(self, name, _formula(getattr(self, name)))
        pairs = self.streams.items() if isinstance(self.streams, Mapping) else self.streams
        starts = sorted(((name, _formula(start)) for name, start in pairs), key=itemgetter(0))
        object.__setattr__(self, "streams", tuple(starts))
        object.__setattr__(self, "ranges", tuple(self.ranges))
        self._check()

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Every formula that some layer may have, the ranges' first."""
        return (*(part.formula for part in self.ranges), self.formula)

    def formula_at(self, layer: int, layers: int) -> Formula:
        """The formula of a layer, counted from 1."""
        return next((part.formula for part in self.ranges if part.holds(layer, layers)), self.formula)

    def computes_as(self, other: Placement) -> bool:
        """Whether both compute the same, whatever weights they start from; a step equals the layer it makes."""
        mine, theirs = (
            (
                one.operator,
                one.formula.layer(),
                one.embed,
                one.final,
                one.streams,
                [(r.until, r.formula.layer()) for r in one.ranges],
            )
            for one in (self, other)
        )
        return mine == theirs

    def to_dict(self) -> dict[str, Any]:
        """For JSON; only what is not the default."""
        data: dict[str, Any] = {"name": self.name, "formula": str(self.formula)}
        data |= {"embed": str(self.embed), "final": str(self.final)}
        if self.streams:
            data["streams"] = {name: str(start) for name, start in self.streams}
        if self.ranges:
            data["ranges"] = [{"until": part.until, "formula": str(part.formula)} for part in self.ranges]
        if self.initial:
            data["initial"] = {"rule": self.initial.rule, "factor": self.initial.factor, "on": list(self.initial.on)}
        if self.operator:
            data["operator"] = self.operator
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Placement:
        """From JSON."""
        names = ("name", "formula", "embed", "final", "streams", "operator")
        rest = {key: data[key] for key in names if key in data}
        ranges = tuple(Range(**part) for part in data.get("ranges", ()))
        initial = InitialWeights(**data["initial"]) if data.get("initial") else None
        return cls(**rest, ranges=ranges, initial=initial)

    def _check(self) -> None:
        self._check_streams()
        if self.operator and (self.streams or self.ranges or not self.formula.is_step):
            raise ValueError(
                "an operator holds the streams itself: its formula is one step's branch, such as f(norm(x))"
            )
        declared = {STREAM, *(name for name, _ in self.streams)}
        for formula in self.formulas:
            if not formula.sublayers:
                raise ValueError(f"a placement's formula has a sublayer, such as x + f(norm(x)); {formula} has none")
            for name in formula.streams:
                if name not in declared:
                    raise ValueError(
                        f"{formula} reads a stream {name!r} whose start is not declared; "
                        f"declare it, such as streams={{{name!r}: 'x'}}{nearest(name, declared)}"
                    )
        for formula, known in (
            (self.embed, {STREAM}),
            (self.final, declared),
            *((s, {STREAM}) for _, s in self.streams),
        ):
            if formula.sublayers:
                raise ValueError(f"{formula} stands outside the layers and cannot have a sublayer")
            if unknown := set(formula.streams) - known:
                raise ValueError(f"{formula} reads {', '.join(sorted(unknown))}, which is not a stream there")

    def _check_streams(self) -> None:
        names = [name for name, _ in self.streams]
        for name in names:
            if not NAME.match(name) or name in RESERVED or name == STREAM or names.count(name) > 1:
                raise ValueError(
                    f"a stream beside x has a lower-case name of its own that is no word of the notation, not {name!r}"
                )
            if not any(name in formula.streams for formula in (*self.formulas, self.final)):
                raise ValueError(f"no formula reads the stream {name!r}; it would do nothing")


def surrounded(formula: Formula) -> Placement:
    """A placement for a bare formula: a final norm where the formula has norms and its last act is none.

    This is the convention of Xiong et al., On Layer Normalization in the Transformer Architecture, 2020,
    table 1: a stack whose stream is never normalised is closed by one norm.
    """
    final = "norm(x)" if formula.norms and not ends_in_norm(formula) else STREAM
    return Placement(name=str(formula), formula=formula, final=Formula(final))


def ends_in_norm(formula: Formula) -> bool:
    """Whether the last act is a norm."""
    last = formula.tree.statements[-1].value
    return isinstance(last, Call) and last.word in NORMS


def _formula(value: Formula | str) -> Formula:
    return value if isinstance(value, Formula) else Formula(value)
