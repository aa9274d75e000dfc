"""Tree to English: what a step does, said aloud."""

from __future__ import annotations

from normula.formula.text import expression, is_number
from normula.formula.tree import Binary, Call, Expr, Gain, Name, Negative, Tree
from normula.formula.words import FUNCTIONS, INNER, NORMS, STREAM, SUBLAYERS

_SITES = {
    "qk": "on queries and keys",
    "qkv": "on queries, keys and values",
    "out": "before the output projection",
    "mid": "before the second projection",
}
assert set(_SITES) == {site for sites in INNER.values() for site in sites}


def words(tree: Tree) -> str:
    """One sentence a statement."""
    numbers: set[str] = set()
    sentences = []
    for statement in tree.statements:
        if is_number(statement.value, numbers):
            numbers.add(statement.name)
            sentences.append(f"{statement.name} is {_number(statement.value)}.")
        else:
            subject = "The new stream" if statement.name == STREAM else f"The value {statement.name}"
            sentences.append(f"{subject} is {_phrase(statement.value, numbers)}.")
    return " ".join(sentences)


def _phrase(expr: Expr, numbers: set[str]) -> str:
    match expr:
        case Name(name=name):
            return "the stream" if name == STREAM else name
        case Negative(value=value):
            return f"minus {_phrase(value, numbers)}"
        case Binary(op="*", left=left, right=right):
            factor, value = (left, right) if is_number(left, numbers) else (right, left)
            size = f"({_number(factor)})" if isinstance(factor, Binary) and factor.op in "+-" else _number(factor)
            return f"{size} times {_operand(value, numbers)}"
        case Binary(op="/", left=left, right=right):
            return f"{_operand(left, numbers)} divided by {_number(right)}"
        case Binary(op=op, left=left, right=right):
            sign = "plus" if op == "+" else "minus"
            return f"{_phrase(left, numbers)} {sign} {_operand(right, numbers)}"
        case Call(word=word, argument=argument, inner=inner, start=start):
            inside = _operand(argument, numbers)
            if word == "stop":
                return f"{inside} without its gradient"
            if word in NORMS:
                own = "" if start is None else f" (its gain from {expression(start)})"
                return f"{NORMS[word]}{own} of {inside}"
            sites = " and ".join(f"{NORMS[norm]} {_SITES[site]}" for site, norm in inner)
            return f"{SUBLAYERS[word]}{f' (with {sites})' if sites else ''} of {inside}"
    return expression(expr, numbers)


def _operand(expr: Expr, numbers: set[str]) -> str:
    """A phrase in brackets where it is a sum."""
    text = _phrase(expr, numbers)
    return f"({text})" if isinstance(expr, Binary) and expr.op in "+-" else text


def _number(expr: Expr) -> str:
    match expr:
        case Gain(start=None, channel=channel):
            return f"a learned factor{' for each feature' if channel else ''}"
        case Gain(start=start, channel=channel):
            assert start is not None
            return f"a learned factor{' for each feature' if channel else ''} (from {expression(start)})"
        case Call(word=word, argument=Gain() as gain) if word in FUNCTIONS:
            return f"{word} of {_number(gain)}"
        case Binary(op="*", left=left, right=Gain() as gain):
            return f"{expression(left)} times {_number(gain)}"
    return expression(expr)
