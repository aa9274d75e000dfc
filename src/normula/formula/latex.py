r"""Tree to LaTeX: `x + f(\mathrm{norm}(x))`, one line a statement."""

from __future__ import annotations

from typing import Final

from normula.formula.text import decimal, is_bare, is_number
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Number, Tree
from normula.formula.words import STREAM

_NAMES: Final = {"l": r"\ell", "Ld": "L_d", "Le": "L_e"}
_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 4, "**": 4}


def latex(tree: Tree) -> str:
    """LaTeX for mathematics mode; several statements stand in an `aligned` block."""
    numbers: set[str] = set()
    lines = []
    for statement in tree.statements:
        text = _latex(statement.value, 0, numbers)
        if is_number(statement.value, numbers):
            numbers.add(statement.name)
        lines.append(rf"{_name(statement.name)} &\leftarrow {text}")
    if len(lines) > 1:
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"
    only = lines[0].replace("&", "")
    return only.removeprefix(rf"{STREAM} \leftarrow ") if is_bare(tree) else only


def _name(name: str) -> str:
    if len(name) == 1 or name in _NAMES:
        return _NAMES.get(name, name)
    letter, digits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    if len(letter) == 1 and digits:
        return f"{letter}_{{{digits}}}"
    return r"\mathrm{" + name.replace("_", r"\_") + "}"


def _latex(expr: Expr, outer: int, numbers: set[str]) -> str:
    match expr:
        case Number(value=value):
            mantissa, _, exponent = decimal(value).partition("e")
            times = "" if mantissa == "1" else rf"{mantissa} \cdot "
            return rf"{times}10^{{{exponent}}}" if exponent else mantissa
        case Name(name=name):
            return _name(name)
        case Gain(start=start, channel=channel):
            letter = r"\boldsymbol{\gamma}" if channel else r"\gamma"
            return letter if start is None else rf"{letter}_{{{_latex(start, 0, numbers)}}}"
        case Call(word="sqrt", argument=argument):
            return rf"\sqrt{{{_latex(argument, 0, numbers)}}}"
        case Call(word=word, argument=argument, inner=inner, start=start):
            sites = ",".join(rf"\mathrm{{{site}}}:\mathrm{{{norm}}}" for site, norm in inner)
            sites += "" if start is None else rf"\gamma:{_exponent(start, numbers)}"
            head = word if len(word) == 1 else rf"\mathrm{{{word}}}"
            return head + (f"_{{{sites}}}" if sites else "") + rf"\left({_latex(argument, 0, numbers)}\right)"
        case Negative(value=value):
            return _bracketed(f"-{_latex(value, 2, numbers)}", outer > 2)
        case Binary(op="/", left=left, right=right):
            return rf"\frac{{{_latex(left, 0, numbers)}}}{{{_latex(right, 0, numbers)}}}"
        case Binary(op="**", left=left, right=right):
            base = _latex(left, 0, numbers)
            bracketed = _bracketed(base, isinstance(left, Binary | Negative) or "^" in base)
            return rf"{bracketed}^{{{_exponent(right, numbers)}}}"
        case Binary(op=op, left=left, right=right):
            own = _PRECEDENCE[op]
            sign = r"\," if op == "*" else f" {op} "
            text = f"{_latex(left, own, numbers)}{sign}{_latex(right, own + 1, numbers)}"
            return _bracketed(text, own < outer)


def _exponent(expr: Expr, numbers: set[str]) -> str:
    """An exponent on one line: 1/4."""
    match expr:
        case Binary(op="/", left=left, right=right):
            return f"{_latex(left, 2, numbers)}/{_latex(right, 5, numbers)}"
    return _latex(expr, 0, numbers)


def _bracketed(text: str, needed: bool) -> str:
    return rf"\left({text}\right)" if needed else text
