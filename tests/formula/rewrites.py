"""Two ways to change a formula: so that it means the same, and so that it means something else.

Each is a function from one part of a tree to the parts that may stand in its place. `rewritten` and `mutated`
let hypothesis choose the part and the change, and give the new text.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from hypothesis import strategies as st

from normula.formula.parse import parse
from normula.formula.sites import streams
from normula.formula.text import calls, is_number, unparse
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Number, Tree, rebuilt, walk
from normula.formula.words import NORMS, SYMBOLS

Change = Callable[[Expr, bool], Iterator[Expr]]


@st.composite
def rewritten(draw: st.DrawFn, text: str) -> str:
    """The text of a formula after up to five changes by the laws of algebra, and with its values renamed."""
    tree = parse(text)
    for _ in range(draw(st.integers(1, 5))):
        tree = draw(changed(tree, same)) if draw(st.integers(0, 3)) else draw(named_part(tree))
    return unparse(renamed(tree) if draw(st.booleans()) else tree)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """The text of a formula with one change after which it means something else, as a rule."""
    tree = parse(text)
    split = with_a_use_split(tree)
    return unparse(draw(st.sampled_from(split)) if split and draw(st.booleans()) else draw(changed(tree, other)))


def with_a_use_split(tree: Tree) -> list[Tree]:
    """The trees in which one reader of a named value makes that value anew: two calls where there was one."""
    found = []
    for place, (named, reader) in enumerate(pairwise(tree.statements), start=1):
        if {call.word for call in calls(named.value) if call.index >= 0} == {"l2norm"}:
            continue  # it has no parameters: two of the same value agree, which is true and not folded in
        for number, part in enumerate(walk(reader.value)):
            if part == Name(named.name):
                found.append(replaced(tree, place, number, named.value))
    return found


@st.composite
def changed(draw: st.DrawFn, tree: Tree, change: Change) -> Tree:
    """The tree with one part changed."""
    options = [
        (place, number, new)
        for place, statement in enumerate(tree.statements)
        for number, part in enumerate(walk(statement.value))
        for new in change(part, is_number(part, numbers_before(tree, place)))
    ]
    return tree if not options else replaced(tree, *draw(st.sampled_from(options)))


def replaced(tree: Tree, place: int, number: int, new: Expr) -> Tree:
    """The tree with the part of this number, in running order, in this statement replaced."""
    count = iter(range(10**9))
    value = rebuilt(tree.statements[place].value, lambda part: new if next(count) == number else part)
    statements = list(tree.statements)
    statements[place] = Assign(statements[place].name, value)
    return Tree(tuple(statements))


@st.composite
def named_part(draw: st.DrawFn, tree: Tree) -> Tree:
    """The tree with one part under a name of its own."""
    place = draw(st.integers(0, len(tree.statements) - 1))
    parts = list(walk(tree.statements[place].value))
    number = draw(st.integers(0, len(parts) - 1))
    name = f"fresh{len(tree.statements)}"
    after = replaced(tree, place, number, Name(name))
    return Tree((*after.statements[:place], Assign(name, parts[number]), *after.statements[place:]))


def renamed(tree: Tree) -> Tree:
    """Every temporary under another name, a new one at every assignment."""
    kept, now, statements = set(streams(tree)), {}, []
    for place, statement in enumerate(tree.statements):
        value = rebuilt(
            statement.value, lambda part: Name(now.get(part.name, part.name)) if isinstance(part, Name) else part
        )
        if statement.name not in kept:
            now[statement.name] = f"renamed{place}"
        statements.append(Assign(now.get(statement.name, statement.name), value))
    return Tree(tuple(statements))


def numbers_before(tree: Tree, place: int) -> set[str]:
    """The names that stand for numbers before a statement."""
    found: set[str] = set()
    for statement in tree.statements[:place]:
        (found.add if is_number(statement.value, found) else found.discard)(statement.name)
    return found


def same(part: Expr, number: bool) -> Iterator[Expr]:
    """What a part is equal to."""
    yield Negative(Negative(part))
    yield Binary("*", Number(Fraction(1)), part)
    yield Binary("/", Binary("*", part, Number(Fraction(3))), Number(Fraction(3)))
    zero = Number(Fraction(0))
    yield Binary("+", part, zero if number else Binary("*", zero, Name("x")))
    match part:
        case Binary(op="+" | "*", left=left, right=right):
            yield Binary(part.op, right, left)
        case Binary(op="-", left=left, right=right):
            yield Binary("+", Negative(right), left)
        case Binary(op="/", left=left, right=right):
            yield Binary("*", Binary("/", Number(Fraction(1)), right), left)
            yield Binary("*", left, Binary("**", right, Negative(Number(Fraction(1)))))
        case Binary(op="**", left=Binary(op="*", left=a, right=b), right=p) if positive(a) and positive(b):
            yield Binary("*", Binary("**", a, p), Binary("**", b, p))
        case Call(word=word, start=None) if word in NORMS:
            yield replace(part, start=Number(Fraction(1)))
        case Call(word="sqrt", argument=argument):
            yield Binary("**", argument, Number(Fraction(1, 2)))
        case Call(word="stop", argument=argument):
            yield Call("stop", part)
            if isinstance(argument, Binary) and argument.op in "+-":
                yield Binary(argument.op, Call("stop", argument.left), Call("stop", argument.right))
    match part:
        case Binary(op="*", left=c, right=Binary(op="+" | "-" as op, left=left, right=right)) if not learned(c):
            yield Binary(op, Binary("*", c, left), Binary("*", c, right))
        case Binary(op="+", left=a, right=Binary(op="+", left=b, right=c)):
            yield Binary("+", Binary("+", a, b), c)
    if positive(part):
        yield Binary("**", Binary("**", part, Number(Fraction(1, 4))), Number(Fraction(4)))


def other(part: Expr, number: bool) -> Iterator[Expr]:
    """What a part is not equal to: a norm more or less, another factor, a term less, a call that changes place."""
    if number:
        yield Binary("+", part, Number(Fraction(2, 5)))
        yield Binary("*", part, Number(Fraction(3)))  # no number of the strategies becomes zero or infinite by it
        return
    yield Call("norm", part)
    yield Binary("*", Number(Fraction(7, 10)), part)
    yield Negative(part)
    match part:
        case Call(word=word, argument=argument, inner=inner):
            if word in NORMS:
                yield argument
                yield replace(part, word="rmsnorm" if word != "rmsnorm" else "layernorm")
            if isinstance(argument, Call) and not inner and not argument.inner:
                yield replace(argument, argument=replace(part, argument=argument.argument))
            if inner:
                yield replace(part, inner=())
        case Binary(op="+" | "-", left=left, right=right):
            yield left
            yield right
            yield Binary("-" if part.op == "+" else "+", left, right)
        case Binary(op="*" | "/", left=left, right=right):
            yield right if part.op == "*" and not is_number(right) else left
        case Name(name="x" | "y" as name):
            yield Name("y" if name == "x" else "x")


def positive(part: Expr) -> bool:
    """Whether a part is a positive number for certain: a symbol, or a number above zero."""
    return (isinstance(part, Name) and part.name in SYMBOLS) or (isinstance(part, Number) and part.value > 0)


def learned(part: Expr) -> bool:
    """Whether a part holds a gain, which must not be written twice, or a name, which may hold one."""
    return any(isinstance(p, Gain) or (isinstance(p, Name) and p.name not in SYMBOLS) for p in walk(part))
