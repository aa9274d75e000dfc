"""A scalar written out: `(8*L)**(-1/4)`, `1/sqrt(2*L)`, `0.5`."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias, TypeVar

from normula.formula.scalar import (
    UNIT,
    Base,
    Exponential,
    Function,
    GainUse,
    Group,
    Monomial,
    Scalar,
    ScalarError,
    Symbol,
    _factors,
    base,
)
from normula.formula.text import expression
from normula.formula.tree import Binary, Call, Expr, Name, Negative, Number

V = TypeVar("V")
SpellGain: TypeAlias = Callable[[GainUse], Expr]

HALF: Final = Fraction(1, 2)
_KINDS: Final = (Symbol, Function, Exponential, Group, GainUse)


def spell(value: Scalar, gain: SpellGain) -> Expr:
    """The scalar as an expression that reads back as the same scalar."""
    spelled = [(_term_order(*term), _spell_term(term[0], abs(term[1]), gain), term[1] < 0) for term in value.terms]
    terms = sorted(spelled, key=lambda term: (term[0], expression(term[1])))
    if not terms:
        return Number(Fraction(0))
    front = next((i for i, (*_, negative) in enumerate(terms) if not negative), 0)
    terms.insert(0, terms.pop(front))
    result: Expr | None = None
    for _, term, negative in terms:
        if result is None:
            result = Negative(term) if negative else term
        else:
            result = Binary("-" if negative else "+", result, term)
    assert result is not None
    return result


def leading_minus(value: Scalar) -> bool:
    """Whether the scalar is one negative term."""
    return len(value.terms) == 1 and all(c < 0 for _, c in value.terms)


def gain_parts(
    terms: list[tuple[Scalar, V]], key: Callable[[Scalar], str]
) -> tuple[list[tuple[Scalar, V]], list[tuple[Scalar, list[tuple[Scalar, V]]]]]:
    """Terms of a sum, and apart from them the groups that share a learned factor; `key` orders the factors.

    `x + g*y - g*x` becomes [(1, x)] and [(g, [(1, y), (-1, x)])].
    """
    places: dict[tuple[Base, Fraction], set[int]] = {}
    for place, (coefficient, _) in enumerate(terms):
        for (_, powers), _ in coefficient.terms:
            for power in powers:
                places.setdefault(power, set()).add(place)
    shared = [power for power, where in places.items() if len(where) > 1 and base(power[0]).gains]
    if not shared:
        return terms, []
    common = min(shared, key=lambda power: (-len(places[power]), key(base(*power))))
    factor = base(*common)
    left: list[tuple[Scalar, V]] = []
    inside: list[tuple[Scalar, V]] = []
    for coefficient, value in terms:
        has = frozenset(term for term in coefficient.terms if common in term[0][1])
        if has:
            inside.append((Scalar(has) / factor, value))
        if coefficient.terms - has:
            left.append((Scalar(coefficient.terms - has), value))
    plain, grouped = gain_parts(left, key)
    return plain, [(factor, inside), *grouped]


def _spell_term(monomial: Monomial, c: Fraction, gain: SpellGain) -> Expr:
    """One product with a positive factor c: a number, roots, powers above and below the line."""
    radicals, powers = monomial
    above: list[Expr] = []
    below: list[Expr] = []
    rest = sorted(powers, key=lambda item: _base_order(item[0]))
    roots = [(one, p) for one, p in rest if p.denominator > 1 and isinstance(one, Symbol)]
    if radicals and roots and len({p for _, p in roots}) == 1:
        p = roots[0][1]
        if (radicand := _under_root(monomial, c, p)) is not None:
            inside = _product([_number(radicand), *(Name(one.name) for one, _ in roots)])
            _place(inside, p, above, below)
            rest, radicals, c = [item for item in rest if item not in roots], frozenset(), Fraction(1)
    if radicals:
        q = math.lcm(*(e.denominator for _, e in radicals))
        radicand = _under_root((radicals, frozenset()), c, Fraction(1, q))
        if radicand is not None and radicand.denominator < radicand.numerator:
            _place(_number(radicand), Fraction(1, q), above, below)
            c = Fraction(1)
        elif radicand is not None:
            _place(_number(1 / radicand), Fraction(-1, q), above, below)
            c = Fraction(1)
        else:
            for prime, e in sorted(radicals):
                _place(Number(Fraction(prime)), e, above, below)
    spelled = [(_base_order(one), _spell_base(one, gain), p) for one, p in rest]
    divisors: list[Expr] = []
    for (kind, _), expr, p in sorted(spelled, key=lambda item: (item[0], expression(item[1]))):
        if kind == _KINDS.index(Group) and p.denominator == 1:  # a product with a sum would be multiplied out
            divisors.append(expr) if p == -1 else above.append(Binary("**", expr, _quotient(p)))
        else:
            _place(expr, p, above, below)
    if not _short_decimal(c) or ((below or divisors) and c.numerator == 1):
        if c.denominator > 1:
            below.insert(0, Number(Fraction(c.denominator)))
        c = Fraction(c.numerator)
    if c != 1 or not above:
        above.insert(0, _number(c))
    result = _product(above)
    for divisor in ([_product(below)] if below else []) + divisors:
        result = Binary("/", result, divisor)
    return result


def _place(expr: Expr, p: Fraction, above: list[Expr], below: list[Expr]) -> None:
    """The power in its usual spelling: whole and half powers go below the line when negative."""
    if p in (1, -1):
        (above if p > 0 else below).append(expr)
    elif p in (HALF, -HALF):
        (above if p > 0 else below).append(Call("sqrt", expr))
    elif p.denominator == 1 and p < 0:
        below.append(Binary("**", expr, Number(-p)))
    else:
        above.append(Binary("**", expr, _quotient(p)))


def _under_root(monomial: Monomial, c: Fraction, p: Fraction) -> Fraction | None:
    """The rational r with r**p = c * radicals, if there is one that is fit to print."""
    exponents = dict(monomial[0])
    try:
        for sign, whole in ((1, c.numerator), (-1, c.denominator)):
            for prime, e in _factors(whole).items():
                exponents[prime] = exponents.get(prime, Fraction(0)) + sign * e
    except ScalarError:
        return None
    result = Fraction(1)
    for prime, exponent in exponents.items():
        whole_power = exponent / p
        if whole_power.denominator != 1 or abs(whole_power) > 30:
            return None
        result *= Fraction(prime) ** int(whole_power)
    return result if max(result.numerator, result.denominator) < 10**6 else None


def _spell_base(one: Base, gain: SpellGain) -> Expr:
    match one:
        case Symbol(name=name):
            return Name(name)
        case GainUse():
            return gain(one)
        case Function(word=word, argument=argument):
            return Call(word, spell(argument, gain))
        case Group(value=value):
            return spell(value, gain)
        case Exponential(base=under, exponent=over):
            return Binary("**", spell(under, gain), spell(over, gain))


def _product(factors: list[Expr]) -> Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = Binary("*", result, factor)
    return result


def _number(value: Fraction) -> Expr:
    """A whole number, a short decimal, or a quotient."""
    if value < 0:
        return Negative(_number(-value))
    if _short_decimal(value):
        return Number(value)
    return _quotient(value)


def _quotient(value: Fraction) -> Expr:
    """A whole number or a quotient of two."""
    if value < 0:
        return (
            Negative(_quotient(-value))
            if value.denominator == 1
            else Binary("/", Negative(Number(Fraction(-value.numerator))), Number(Fraction(value.denominator)))
        )
    if value.denominator == 1:
        return Number(value)
    return Binary("/", Number(Fraction(value.numerator)), Number(Fraction(value.denominator)))


def _short_decimal(value: Fraction) -> bool:
    """Whether the number has a finite decimal form that a person would write, of at most 15 digits."""
    places, denominator = 0, value.denominator
    for prime in (2, 5):
        count = 0
        while denominator % prime == 0:
            denominator //= prime
            count += 1
        places = max(places, count)
    return denominator == 1 and places <= 30 and len(str(abs(value.numerator) * 10**places // value.denominator)) <= 15


def _term_order(monomial: Monomial, c: Fraction) -> tuple[object, ...]:
    return (monomial == UNIT, sorted((_base_order(one), -p) for one, p in monomial[1]), sorted(monomial[0]), c)


def _base_order(one: Base) -> tuple[int, str]:
    text = one.name if isinstance(one, Symbol) else one.word if isinstance(one, Function) else ""
    return _KINDS.index(type(one)), text
