"""Here lives Formula: one line of text that says where a step normalises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from normula.formula.canonical import canonical, renumbered
from normula.formula.errors import Fault, FormulaError
from normula.formula.graph import graph
from normula.formula.latex import latex
from normula.formula.parse import on_one_line, parse
from normula.formula.prose import words
from normula.formula.sites import sites, streams
from normula.formula.skip import skip
from normula.formula.text import expression, names, unparse
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Number, Tree, rebuilt, walk
from normula.formula.words import CONSTANTS, INNER, NORMS, STEP, SUBLAYERS, SYMBOLS


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Formula:
    """A formula of the notation; equal formulas mean the same step, however they are written.

        >>> Formula("f(norm(x)) + x")
        Formula('x + f(norm(x))')
        >>> Formula("f(norm(x)) + x") == Formula("x + f(norm(x))")
        True
        >>> Formula("norm(x + f(x))").skip
        'J[norm](x + f(x))'

    Args:
        text: the formula; see the notation's page for its words.

    Raises:
        FormulaError: the text is not a formula; the message has a caret under the column.

    Attributes:
        text: the canonical text.
        written: the tree of the text as it was given.
        tree: the canonical tree.
        renumbering: for each call and gain of `written`, its index in `tree`.
        calls: the norms and sublayers of `tree`, in running order.
        gains: its learned factors, in running order.
        sites: what each call and gain is called in a model, by index: `norm_in`, `f`, `gain` ...
    """

    text: str
    written: Tree = field(compare=False)
    tree: Tree = field(compare=False)
    renumbering: dict[int, int] = field(compare=False)
    calls: tuple[Call, ...] = field(compare=False)
    gains: tuple[Gain, ...] = field(compare=False)
    sites: tuple[str, ...] = field(compare=False)

    def __init__(self, text: str) -> None:
        written = parse(text)
        try:
            tree, renumbering = renumbered(canonical(graph(written)))
        except Fault as fault:
            raise FormulaError(fault.reason, text=on_one_line(text), column=fault.column) from None
        _check_readable(text, unparse(tree))
        parts = [part for statement in tree.statements for part in walk(statement.value)]
        values = {
            "text": unparse(tree),
            "written": written,
            "tree": tree,
            "renumbering": renumbering,
            "calls": tuple(part for part in parts if isinstance(part, Call) and part.index >= 0),
            "gains": tuple(part for part in parts if isinstance(part, Gain)),
            "sites": sites(tree),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def __reduce__(self) -> tuple[type[Formula], tuple[str]]:
        return Formula, (self.text,)

    @property
    def latex(self) -> str:
        """The formula in LaTeX, for mathematics mode."""
        return latex(self.tree)

    @property
    def words(self) -> str:
        """The formula in English."""
        return words(self.tree)

    @property
    def skip(self) -> str:
        """The derivative of the new stream with respect to the old one, with the sublayers held constant."""
        return skip(self.tree)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the formula reads, x first."""
        return streams(self.tree)

    @property
    def symbols(self) -> frozenset[str]:
        """The depth symbols and free constants that its numbers depend on."""
        read = {name for statement in self.tree.statements for name in names(statement.value)}
        return frozenset(read & {*SYMBOLS, *CONSTANTS} - {statement.name for statement in self.tree.statements})

    @property
    def is_step(self) -> bool:
        """Whether it describes one sublayer step, with `f`."""
        return any(call.word == STEP for call in self.calls)

    @property
    def sublayers(self) -> tuple[str, ...]:
        """The words of its sublayers, in running order."""
        return tuple(call.word for call in self.calls if call.word in SUBLAYERS)

    @property
    def norms(self) -> tuple[str, ...]:
        """The words of its norms, in running order."""
        return tuple(call.word for call in self.calls if call.word in NORMS)

    def layer(self, sublayers: Sequence[str] = ("attn", "mlp")) -> Formula:
        """The formula of a whole layer: a step written once for each sublayer; a layer's formula is itself.

            >>> Formula("x + f(norm(x))").layer()
            Formula('x = x + attn(norm(x)); x = x + mlp(norm(x))')

        Raises:
            ValueError: a word is not a sublayer.
        """
        if not self.is_step:
            return self
        for word in sublayers:
            if word not in SUBLAYERS or word == STEP:
                raise ValueError(f"{word!r} is not a named sublayer; they are {', '.join(list(SUBLAYERS)[1:])}")
        steps = [_spelled(self.tree, word, place, len(sublayers)) for place, word in enumerate(sublayers, start=1)]
        return Formula("; ".join(steps))

    def svg(self, **options: Any) -> str:
        """A drawing as SVG text, for pages; see `normula.formula.draw.svg`."""
        from normula.formula.draw import svg

        return svg(self, **options)

    def drawing(self) -> str:
        """A drawing in box characters, for terminals."""
        from normula.formula.draw import terminal

        return terminal(self)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"formula": self.text}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Formula:
        """From JSON."""
        return cls(data["formula"])


def _check_readable(text: str, canonical_text: str) -> None:
    """What is printed must be within the bounds of what is read: names that are used once are written out."""
    try:
        parse(canonical_text)
    except FormulaError as error:
        reason = f"with its values written out, this formula is too long ({error.reason})"
        raise FormulaError(reason, text=on_one_line(text), column=0) from None


def _spelled(tree: Tree, word: str, place: int, total: int) -> str:
    """The statements of one step with f as the given sublayer, each an assignment."""
    number = Binary("-", Binary("*", Number(Fraction(total)), Name("l")), Number(Fraction(total - place)))

    def change(part: Expr) -> Expr:
        if isinstance(part, Call) and part.word == STEP:
            return replace(part, word=word, inner=tuple(i for i in part.inner if i[0] in INNER.get(word, ())))
        return number if part == Name("s") else part

    return "; ".join(f"{s.name} = {expression(rebuilt(s.value, change))}" for s in tree.statements)
