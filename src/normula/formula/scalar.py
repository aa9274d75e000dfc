"""Numbers of a formula in normal form: exact sums of products of powers.

A scalar is a sum of terms c * r * m: a rational c, radicals r = 2**(1/4) 3**(1/2) ... with exponents in
(0, 1), and a monomial m in depth symbols, free constants, gains and functions, with rational exponents.
Depth symbols and numbers are positive, so (2*L)**(1/4) = 2**(1/4) * L**(1/4) holds. Two scalars that are
equal by the laws of commutative rings and of powers of products have the same form. A sum below the line or
under a root is kept as it is: (L + 1)/(L + 1) is not seen to be 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

K = TypeVar("K")

MAX_TERMS: Final = 64
MAX_EXPONENT: Final = 64
MAX_BITS: Final = 256
MAX_RADICAND: Final = 10**9


class ScalarError(ArithmeticError):
    """An operation on numbers that the notation does not allow; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A depth symbol or a free constant."""

    name: str


@dataclass(frozen=True, slots=True)
class GainUse:
    """A gain of the formula, by its index; `channel` where it has one number for each feature."""

    index: int
    channel: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """`sqrt`, `log`, `silu` ... of a scalar that does not simplify."""

    word: str
    argument: Scalar


@dataclass(frozen=True, slots=True)
class Group:
    """A sum with a power that cannot be multiplied out, such as (L + 1)**(1/2)."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Exponential:
    """A power with depth symbols in the exponent, such as 0.9**l."""

    base: Scalar
    exponent: Scalar


Base: TypeAlias = Symbol | GainUse | Function | Group | Exponential
Powers: TypeAlias = frozenset[tuple[Base, Fraction]]
Radicals: TypeAlias = frozenset[tuple[int, Fraction]]
Monomial: TypeAlias = tuple[Radicals, Powers]

UNIT: Final[Monomial] = (frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Scalar:
    """A sum of monomials with rational coefficients, none of them zero."""

    terms: frozenset[tuple[Monomial, Fraction]]

    def __add__(self, other: Scalar) -> Scalar:
        return _collect((*self.terms, *other.terms))

    def __neg__(self) -> Scalar:
        return Scalar(frozenset((monomial, -c) for monomial, c in self.terms))

    def __sub__(self, other: Scalar) -> Scalar:
        return self + -other

    def __mul__(self, other: Scalar) -> Scalar:
        if len(self.terms) * len(other.terms) > MAX_TERMS**2:
            raise ScalarError(f"a number has at most {MAX_TERMS} terms when it is multiplied out")
        return _collect(
            term for left, c in self.terms for right, d in other.terms for term in _product(left, right, c * d).terms
        )

    def __truediv__(self, other: Scalar) -> Scalar:
        return self * power(other, number(-1))

    @property
    def rational(self) -> Fraction | None:
        """The value, where it is a rational number."""
        if not self.terms:
            return Fraction(0)
        (monomial, c), *rest = self.terms
        return c if not rest and monomial == UNIT else None

    @property
    def bases(self) -> frozenset[Base]:
        """All bases in it, also those inside functions and groups."""
        found: set[Base] = set()
        for (_, powers), _ in self.terms:
            for base, _ in powers:
                found.add(base)
                for inner in _inside(base):
                    found |= inner.bases
        return frozenset(found)

    @property
    def gains(self) -> frozenset[GainUse]:
        return frozenset(base for base in self.bases if isinstance(base, GainUse))


def number(value: int | Fraction) -> Scalar:
    """A rational number."""
    value = Fraction(value)
    if max(abs(value.numerator), value.denominator).bit_length() > MAX_BITS:
        raise ScalarError("this number is too large or too small to be meant")
    return Scalar(frozenset([(UNIT, value)])) if value else Scalar(frozenset())


def base(one: Base, exponent: Fraction = Fraction(1)) -> Scalar:
    """One base to a power."""
    return Scalar(frozenset([((frozenset(), frozenset([(one, exponent)])), Fraction(1))]))


def power(value: Scalar, exponent: Scalar) -> Scalar:
    """`value ** exponent`."""
    p = exponent.rational
    if p is None:
        if exponent.gains or value.gains:
            raise ScalarError("a gain can stand neither in an exponent nor under one that changes with depth")
        return base(Exponential(value, exponent))
    if abs(p) > MAX_EXPONENT or p.denominator > MAX_EXPONENT:
        raise ScalarError(f"an exponent is at most {MAX_EXPONENT}, and a fraction of at most 1/{MAX_EXPONENT}")
    if p == 0 or p == 1:
        return value if p else ONE
    if not value.terms:
        if p < 0:
            raise ScalarError("division by zero")
        return value
    if len(value.terms) == 1:
        ((monomial, c),) = value.terms
        return _monomial_power(monomial, c, p)
    if p.denominator == 1 and p > 0:
        return _repeated(value, int(p))
    return _group_power(value, p)


def function(word: str, argument: Scalar) -> Scalar:
    """`sqrt`, `log`, `silu` or `sigmoid` of a scalar."""
    if word == "sqrt":
        return power(argument, number(Fraction(1, 2)))
    if word == "log" and argument == ONE:
        return ZERO
    if word == "log" and (argument.rational or 1) <= 0:
        raise ScalarError("the logarithm of a number that is not positive")
    if word == "silu" and argument == ZERO:
        return ZERO
    return base(Function(word, argument))


ZERO: Final = Scalar(frozenset())
ONE: Final = number(1)


def key(value: Scalar, gains: Mapping[int, str] = MappingProxyType({})) -> str:
    """A text that is equal for equal scalars, in any process; `gains` says what each gain is called in it."""
    return (
        "("
        + "+".join(
            sorted(
                f"{c}"
                + "".join(sorted(f"*{prime}^{p}" for prime, p in radicals))
                + "".join(sorted(f"*{_base_key(one, gains)}^{p}" for one, p in powers))
                for (radicals, powers), c in value.terms
            )
        )
        + ")"
    )


def _base_key(one: Base, gains: Mapping[int, str]) -> str:
    match one:
        case Symbol(name=name):
            return name
        case GainUse(index=index):
            return gains.get(index, "gain")
        case Function(word=word, argument=argument):
            return word + key(argument, gains)
        case Group(value=value):
            return key(value, gains)
        case Exponential(base=under, exponent=over):
            return f"{key(under, gains)}^{key(over, gains)}"


def _collect(terms: Iterable[tuple[Monomial, Fraction]]) -> Scalar:
    sums: dict[Monomial, Fraction] = {}
    for monomial, c in terms:
        sums[monomial] = sums.get(monomial, Fraction(0)) + c
    if len(sums) > MAX_TERMS:
        raise ScalarError(f"a number has at most {MAX_TERMS} terms when it is multiplied out")
    for c in sums.values():
        number(c)
    return Scalar(frozenset((monomial, c) for monomial, c in sums.items() if c))


def _product(left: Monomial, right: Monomial, c: Fraction) -> Scalar:
    """The product of two monomials; powers of a group that become whole are multiplied out."""
    c, radicals = _carry(c, _add_exponents(left[0], right[0]))
    powers = _add_exponents(left[1], right[1])
    whole = [(b, p) for b, p in powers.items() if isinstance(b, Group) and p.denominator == 1 and p > 0]
    for b, _ in whole:
        del powers[b]
    result = Scalar(frozenset([((radicals, frozenset(powers.items())), c)]))
    for b, p in whole:
        assert isinstance(b, Group)
        result = result * _repeated(b.value, int(p))
    return result


def _add_exponents(left: Iterable[tuple[K, Fraction]], right: Iterable[tuple[K, Fraction]]) -> dict[K, Fraction]:
    sums: dict[K, Fraction] = {}
    for key, p in (*left, *right):
        sums[key] = sums.get(key, Fraction(0)) + p
    return {key: p for key, p in sums.items() if p}


def _carry(c: Fraction, radicals: Mapping[int, Fraction]) -> tuple[Fraction, Radicals]:
    """Exponents of primes back into (0, 1); what is whole moves into the rational coefficient."""
    rest = {}
    for prime, p in radicals.items():
        whole = p.numerator // p.denominator
        c *= Fraction(prime) ** whole
        if p - whole:
            rest[prime] = p - whole
    return c, frozenset(rest.items())


def _monomial_power(monomial: Monomial, c: Fraction, p: Fraction) -> Scalar:
    radicals = {prime: e * p for prime, e in monomial[0]}
    if p.denominator == 1:
        if max(abs(c.numerator), c.denominator).bit_length() * abs(p) > MAX_BITS:
            raise ScalarError("this number is too large or too small to be meant")
        c = c ** int(p)
    else:
        if c < 0:
            raise ScalarError("a root of a negative number")
        if any(isinstance(b, GainUse) for b, _ in monomial[1]):
            raise ScalarError("a root of a gain, which may become negative")
        for sign, whole in ((1, c.numerator), (-1, c.denominator)):
            for prime, e in _factors(whole).items():
                radicals[prime] = radicals.get(prime, Fraction(0)) + sign * e * p
        c = Fraction(1)
    c, left = _carry(c, radicals)
    powers = {b: e * p for b, e in monomial[1]}
    return _product((left, frozenset(powers.items())), UNIT, c)


def _factors(value: int) -> dict[int, int]:
    """Prime factors of a whole number by trial division; bounded, so that it stays fast."""
    if value > MAX_RADICAND:
        raise ScalarError(f"a number under a root is at most {MAX_RADICAND}, above and below the line")
    found: dict[int, int] = {}
    prime = 2
    while value > 1:
        if prime * prime > value:
            prime = value
        while value % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            value //= prime
        prime += 1
    return found


def _repeated(value: Scalar, times: int) -> Scalar:
    result = ONE
    for _ in range(times):
        result = result * value
    return result


def _group_power(value: Scalar, p: Fraction) -> Scalar:
    """(c * m * rest)**p with the common factor c * m taken out of the sum; positive, where p is no whole number."""
    numerator = denominator = 0
    for _, c in value.terms:
        numerator, denominator = math.gcd(numerator, c.numerator), _lcm(denominator, c.denominator)
    whole = p.denominator == 1
    exponents = [{b: e for b, e in powers if whole or isinstance(b, Symbol)} for (_, powers), _ in value.terms]
    factor = number(Fraction(numerator, denominator))
    for common in {b for each in exponents for b in each}:
        factor = factor * base(common, min(each.get(common, Fraction(0)) for each in exponents))
    if whole and _is_negative(value):
        factor = -factor
    rest = value * power(factor, number(-1))
    return power(factor, number(p)) * base(Group(rest), p)


def _is_negative(value: Scalar) -> bool:
    """One of v and -v is: by the sum of the coefficients, or where it is zero by the first term."""
    total = sum(c for _, c in value.terms)
    first = min(value.terms, key=lambda term: key(Scalar(frozenset([(term[0], Fraction(1))]))))
    return (total or first[1]) < 0


def _lcm(left: int, right: int) -> int:
    return left * right // math.gcd(left, right) if left else right


def _inside(one: Base) -> tuple[Scalar, ...]:
    match one:
        case Function(argument=argument):
            return (argument,)
        case Group(value=value):
            return (value,)
        case Exponential(base=under, exponent=over):
            return (under, over)
    return ()
