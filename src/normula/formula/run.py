"""A tree run over any values that add and multiply: arrays, graph proxies, intervals, texts.

Each framework gives the calls; the statements, the sums and the numbers are the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from normula.formula.text import expression, is_number, names
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Number, Tree, parts, walk
from normula.formula.words import FUNCTIONS, SYMBOLS

Functions: TypeAlias = Mapping[str, Callable[[Any], Any]]

MATH: Final[Functions] = {
    "sqrt": math.sqrt,
    "log": math.log,
    "silu": lambda z: z / (1 + math.exp(-z)),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "ramp": lambda z: min(max(z, 0.0), 1.0),
}


class Runner:
    """The values of one step at one depth.

    Args:
        symbols: values of the depth symbols (and of free constants); numbers, or `step` as what a framework has of it.
        call: what a norm, a sublayer or `stop` makes of a value.
        gain: the learned factor of a gain.
        functions: `silu` and the like for learned factors; numbers use `MATH`.
    """

    def __init__(
        self,
        symbols: Mapping[str, Any],
        call: Callable[[Call, Any], Any],
        gain: Callable[[Gain], Any],
        functions: Functions = MATH,
    ) -> None:
        self.symbols, self.call, self.gain, self.functions = symbols, call, gain, functions

    def run(self, tree: Tree, streams: Mapping[str, Any]) -> dict[str, Any]:
        """The streams after the step; `streams` are those before it."""
        names = dict(streams)
        for statement in tree.statements:
            names[statement.name] = self.value(statement.value, names)
        return {name: names[name] for name in streams}

    def value(self, expr: Expr, names: Mapping[str, Any]) -> Any:
        """One expression.

        Raises:
            ValueError: a number in it is not a finite real number at these depths.
        """
        match expr:
            case Number(value=value):
                return float(value)
            case Name(name=name):
                return names[name] if name in names else self._symbol(name)
            case Negative(value=inner):
                return -self.value(inner, names)
            case Gain():
                return self.gain(expr)
            case Call(word=word, argument=argument):
                inner_value = self.value(argument, names)
                if word not in FUNCTIONS:
                    return self.call(expr, inner_value)
                table = MATH if isinstance(inner_value, float) else self.functions
                return self._checked(expr, lambda: table[word](inner_value))
            case Binary(op=op, left=left, right=right):
                a, b = self.value(left, names), self.value(right, names)
                match op:
                    case "+":
                        return a + b
                    case "-":
                        return a - b
                    case "*":
                        return b if isinstance(a, float) and a == 1.0 else a * b
                    case "/":
                        return self._checked(expr, lambda: a / b)
                    case "**":
                        return self._checked(expr, lambda: a**b)

    def _symbol(self, name: str) -> Any:
        if name not in self.symbols:
            raise ValueError(f"{name!r} has no value here; give it one, such as {name} = 2")
        value = self.symbols[name]
        return float(value) if isinstance(value, int | float) else value

    def _checked(self, expr: Expr, compute: Callable[[], Any]) -> Any:
        try:
            result = compute()
        except (ZeroDivisionError, OverflowError, ValueError):
            result = math.nan
        if isinstance(result, complex) or (isinstance(result, float) and not math.isfinite(result)):
            at = ", ".join(f"{name} = {value:g}" for name, value in self.symbols.items())
            raise ValueError(f"{expression(expr)} is not a finite real number at {at}")
        return result


def number(expr: Expr, symbols: Mapping[str, float]) -> float:
    """The value of a number at these depths.

    Raises:
        ValueError: it is not a finite real number there, or contains a gain.
    """

    def refuse(part: Call | Gain, *_: object) -> float:
        raise ValueError(f"{expression(part)} is not a fixed number")

    value = Runner(symbols, refuse, refuse).value(expr, {})
    assert isinstance(value, float)
    return value


def depth_numbers(tree: Tree) -> tuple[Expr, ...]:
    """The largest parts of a tree that are numbers made of depth symbols, in running order: what changes by layer.

    >>> from normula.formula.parse import parse
    >>> [expression(part) for part in depth_numbers(parse("x + f(norm(x)) / sqrt(2 * l)"))]
    ['sqrt(2*l)']
    """
    found: list[Expr] = []

    def visit(expr: Expr) -> None:
        read = names(expr)
        fixed = is_number(expr) and not any(isinstance(part, Gain) for part in walk(expr))
        if fixed and read and read <= SYMBOLS.keys() - {"step"}:
            found.append(expr)
            return
        for part in parts(expr):
            visit(part)

    for statement in tree.statements:
        visit(statement.value)
    return tuple(found)
