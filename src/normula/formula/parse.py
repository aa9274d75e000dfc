"""Text to tree: a small subset of Python's expression syntax, parsed by `ast` and never evaluated."""

from __future__ import annotations

import ast
import re
import warnings
from fractions import Fraction
from typing import Final, Literal

from normula.formula.errors import Fault, FormulaError, nearest
from normula.formula.text import is_number, names
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Number, Tree, walk
from normula.formula.words import CALLABLE, INNER, NAME, NORMS, RESERVED, STREAM, SUBLAYERS, SYMBOLS

MAX_LENGTH: Final = 2000
MAX_BRACKETS: Final = 32
MAX_NESTING: Final = 80
MAX_STATEMENTS: Final = 64
MAX_GAINS: Final = 32
MAX_DIGITS: Final = 78
MAX_MAGNITUDE: Final = 30
"""Bounds on hostile text: characters, open brackets, nested operations, statements, learned factors, digits of a number
(as many as 256 bits have, so that what is computed can be written), power of ten."""

_NUMBER: Final = re.compile(r"(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?\Z")
_OPERATORS: Final[dict[type[ast.operator], Literal["+", "-", "*", "/", "**"]]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}


def parse(text: str) -> Tree:
    """Read `text` as a formula.

    Raises:
        FormulaError: the text is not a formula; the message has a caret under the column.
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"a formula is a text such as 'x + f(norm(x))', not {type(text).__name__}")
    try:
        return _Reader(_one_line(text)).tree()
    except Fault as fault:
        raise FormulaError(fault.reason, text=on_one_line(text), column=fault.column) from None


def on_one_line(text: str) -> str:
    """The text as it is printed above a caret: each column as it was."""
    return "".join(char if char.isprintable() else " " for char in text)


def parse_number(text: str) -> Expr:
    """Read `text` as a number made of numbers and depth symbols, such as `(8*L)**(-1/4)`.

    Raises:
        FormulaError: the text is not such a number.
    """
    tree = parse(text)
    expr = tree.statements[0].value
    bare = "=" not in text and len(tree.statements) == 1
    learned = any(isinstance(part, Gain) for part in walk(expr))
    if not bare or learned or not is_number(expr) or any(name not in SYMBOLS for name in names(expr)):
        raise FormulaError("here stands a number made of numbers and depth symbols", text=text, column=0)
    return expr


def _one_line(text: str) -> str:
    """The text with line ends outside brackets as `;`, after checks that need no parser; columns are kept."""
    if len(text) > MAX_LENGTH:
        raise Fault(f"a formula has at most {MAX_LENGTH} characters, this one has {len(text)}", MAX_LENGTH)
    line, brackets = [], []
    for column, char in enumerate(text):
        if not (char.isascii() and (char.isprintable() or char in "\n\r\t")):
            raise Fault(f"a formula is written in plain ASCII; {char!r} is not in the notation", column)
        if char == "(":
            brackets.append(column)
            if len(brackets) > MAX_BRACKETS:
                raise Fault(f"at most {MAX_BRACKETS} brackets may be open at once", column)
        elif char == ")":
            if not brackets:
                raise Fault("this bracket closes none; remove it, or open one before", column)
            brackets.pop()
        elif char in "#\\[]{}`@":
            raise Fault(f"{char!r} is not in the notation", column)
        line.append((" " if brackets else ";") if char == "\n" else " " if char in "\r\t" else char)
    if brackets:
        raise Fault("this bracket is never closed; add ')'", brackets[-1])
    return "".join(line)


class _Reader:
    """One text on its way to a tree; counts the calls as it meets them."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.calls = self.gains = 0

    def tree(self) -> Tree:
        pieces = self._pieces()
        if not pieces:
            raise Fault("a formula says what becomes of x, such as x + f(norm(x)); this text is empty", 0)
        if len(pieces) > MAX_STATEMENTS:
            raise Fault(f"a formula has at most {MAX_STATEMENTS} statements", pieces[MAX_STATEMENTS][0])
        last = len(pieces) - 1
        return Tree(tuple(self._statement(start, piece, i == last) for i, (start, piece) in enumerate(pieces)))

    def _pieces(self) -> list[tuple[int, str]]:
        """The statements between semicolons, each with its column."""
        pieces, start = [], 0
        for piece in self.line.split(";"):
            if piece.strip():
                pieces.append((start + len(piece) - len(piece.lstrip()), piece.strip()))
            start += len(piece) + 1
        return pieces

    def _statement(self, start: int, piece: str, last: bool) -> Assign:
        statement = _python(piece, start)
        if isinstance(statement, ast.Expr):
            if not last:
                raise Fault("only the last statement may be bare; name this value, such as n = norm(x)", start)
            return Assign(STREAM, self._expr(statement.value, start, 0))
        if isinstance(statement, ast.AugAssign):
            raise Fault("write the sum out: x = x + f(norm(x))", start)
        if not isinstance(statement, ast.Assign):
            raise Fault("a statement is NAME = expression, or a bare expression at the end", start)
        if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            raise Fault("one name stands left of '='", start)
        name = statement.targets[0].id
        if name in RESERVED:
            raise Fault(f"{name!r} is a word of the notation and cannot be assigned; choose another name", start)
        if not NAME.match(name):
            raise Fault(f"a value's name is lower case (letters, digits, _); {name!r} is not", start)
        return Assign(name, self._expr(statement.value, start, 0))

    def _expr(self, node: ast.expr, start: int, depth: int) -> Expr:
        column = start + node.col_offset
        if depth > MAX_NESTING:
            raise Fault(f"operations are nested more than {MAX_NESTING} deep", column)
        match node:
            case ast.Constant():
                return Number(self._number(node, start), column)
            case ast.Name(id="gain"):
                return Gain(None, False, self._count_gain(column), column)
            case ast.Name(id=name):
                return Name(_checked_name(name, column), column)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Negative(self._expr(operand, start, depth + 1), column)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._expr(operand, start, depth + 1)
            case ast.BinOp(left=left, op=operator, right=right):
                if isinstance(operator, ast.BitXor):
                    raise Fault("powers are written **, not ^", self._after(left, start))
                if type(operator) not in _OPERATORS:
                    raise Fault("the operators are + - * / and **", self._after(left, start))
                return Binary(
                    _OPERATORS[type(operator)],
                    self._expr(left, start, depth + 1),
                    self._expr(right, start, depth + 1),
                    column,
                )
            case ast.Call(func=ast.Name(id=word)):
                return self._call(word, node, start, depth)
        raise Fault("only names, numbers, + - * / **, brackets and calls such as norm(x) are in the notation", column)

    def _call(self, word: str, node: ast.Call, start: int, depth: int) -> Expr:
        column = start + node.col_offset
        if word not in CALLABLE:
            known = nearest(word, CALLABLE) or f"; the words are {', '.join(CALLABLE)}"
            raise Fault(f"{word!r} is not a word of the notation{known}", column)
        for argument in (*node.args, *node.keywords):
            if isinstance(argument, ast.Starred) or (isinstance(argument, ast.keyword) and argument.arg is None):
                raise Fault("a star does not stand before an argument", start + argument.col_offset)
        if word == "gain":
            return self._gain(node, start, depth)
        if len(node.args) != 1:
            raise Fault(f"{word} takes one value, such as {word}(x); it has {len(node.args)}", column)
        value = self._expr(node.args[0], start, depth + 1)
        begin, sites = None, node.keywords
        if word in NORMS and [keyword.arg for keyword in sites] == ["gain"]:
            begin, sites = self._expr(sites[0].value, start, depth + 1), []
        inner = tuple(sorted(_inner(word, keyword, start) for keyword in sites))
        if len({site for site, _ in inner}) < len(inner) or {"qk", "qkv"} <= {site for site, _ in inner}:
            raise Fault("one norm for each inner site; qkv covers qk", column)
        own = word in SUBLAYERS or word in NORMS
        return Call(word, value, inner, begin, self._count() if own else -1, column)

    def _gain(self, node: ast.Call, start: int, depth: int) -> Gain:
        column = start + node.col_offset
        per = node.args[1] if len(node.args) == 2 else None
        if node.keywords or not 1 <= len(node.args) <= 2:
            raise Fault("a gain is written gain(start) or gain(start, 'channel')", column)
        if per is not None and not (isinstance(per, ast.Constant) and per.value == "channel"):
            raise Fault("the second argument of gain can only be 'channel'", start + per.col_offset)
        value = self._expr(node.args[0], start, depth + 1)
        return Gain(value, per is not None, self._count_gain(column), column)

    def _count_gain(self, column: int) -> int:
        self.gains += 1
        if self.gains > MAX_GAINS:
            raise Fault(f"a formula has at most {MAX_GAINS} learned factors", column)
        return self._count()

    def _after(self, left: ast.expr, start: int) -> int:
        """The column of the operator after an operand, which may stand in brackets."""
        column = start + (left.end_col_offset or 0)
        return column + len(self.line[column:]) - len(self.line[column:].lstrip(" )"))

    def _count(self) -> int:
        self.calls += 1
        return self.calls - 1

    def _number(self, node: ast.Constant, start: int) -> Fraction:
        column = start + node.col_offset
        source = self.line[column : start + (node.end_col_offset or 0)].replace("_", "")
        parts = _NUMBER.match(source)
        if type(node.value) not in (int, float) or parts is None:
            raise Fault(f"{source} is not a number of the notation, such as 2, 0.5 or 1e-5", column)
        if (
            len(parts[1].lstrip("0")) + len(parts[2].rstrip("0")) > MAX_DIGITS
            or abs(int(parts[3] or 0)) > MAX_MAGNITUDE
        ):
            raise Fault(f"a number has at most {MAX_DIGITS} digits and a power of ten up to {MAX_MAGNITUDE}", column)
        return Fraction(source)


def _python(piece: str, start: int) -> ast.stmt:
    """The one statement that Python's own parser sees in the piece."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "'int' object is not callable": the reader says it better
            statements = ast.parse(piece).body
    except SyntaxError as error:
        raise Fault(
            f"this cannot be read as a formula ({error.msg})", start + max((error.offset or 1) - 1, 0)
        ) from None
    except (RecursionError, MemoryError, ValueError):
        raise Fault("operations are nested too deep", start) from None
    return statements[0]


def _checked_name(name: str, column: int) -> str:
    if name in SYMBOLS or (NAME.match(name) and name not in RESERVED):
        return name
    if name in RESERVED:
        raise Fault(f"{name!r} must be called on a value, such as {name}(x)", column)
    raise Fault(f"{name!r} is neither a lower-case name nor a depth symbol ({', '.join(SYMBOLS)})", column)


def _inner(word: str, keyword: ast.keyword, start: int) -> tuple[str, str]:
    """`qk=norm` as a pair, if the sublayer has that site."""
    column, sites = start + keyword.col_offset, ("gain",) if word in NORMS else INNER.get(word, ())
    if keyword.arg not in sites:
        have = f"it has {', '.join(sites)}" if sites else "it has none"
        what = "option" if word in NORMS else "inner site"
        raise Fault(f"{word} has no {what} {keyword.arg!r}; {have}{nearest(str(keyword.arg), sites)}", column)
    if not (isinstance(keyword.value, ast.Name) and keyword.value.id in NORMS):
        came = ast.unparse(keyword.value)
        raise Fault(f"an inner site holds a norm ({', '.join(NORMS)}), not {came}{nearest(came, NORMS)}", column)
    return keyword.arg, keyword.value.id
