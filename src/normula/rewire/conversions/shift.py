"""Post-LN to its shifted form, and back: the same function with every norm one slot further down.

    x = norm(x + f(x))                     Post-LN, norm 1, 2, ... S, perhaps norm 0 before the stack
    n = norm(x); x = n + f(n)              shifted, norm 0, 1, ... S - 1, and norm S after the stack

Without a norm before the stack, the first sublayer of the shifted form reads x as it is.
"""

from __future__ import annotations

from normula.formula import Formula
from normula.read.found import ReadChain
from normula.record.conversion import Conversion
from normula.rewire.conversions.model import Model
from normula.rewire.errors import RewireError

POST = Formula("norm(x + f(x))")
SHIFTED = Formula("n = norm(x); n + f(n)")


def shift(model: Model) -> Conversion:
    """Post-LN to its shifted form.

    Raises:
        RewireError: a layer is not Post-LN, or a final norm follows the last one.
    """
    for one in model.found:
        _check(one, POST, "Post-LN, x = norm(x + f(x))")
        if one.final:
            raise RewireError("A Post-LN stack that a final norm follows is shifted without it: merge the two first.")
    bare = {not one.embed for one in model.found}
    if len(bare) > 1:
        raise RewireError(
            "Of this model's stacks some begin with a norm and some do not; they are not shifted together."
        )
    to: dict[str, object] = {"name": "shifted", "formula": str(SHIFTED), "final": "norm(x)"}
    if bare.pop():
        first = _words(model.found[0])
        to |= {"ranges": [{"until": "1", "formula": str(_bare_first(first))}]}
    return Conversion(
        name="shift",
        to=to,
        order=tuple(model.affine(node) for node in model.norms()),
        done=("every norm stands one slot further down, the last one after the stack",),
    )


def unshift(model: Model) -> Conversion:
    """The shifted form to Post-LN.

    Raises:
        RewireError: a layer has another formula, or no norm follows the last one.
    """
    bare = {one.layers[0].text == str(_bare_first(_words(one))) for one in model.found}
    if len(bare) > 1:
        raise RewireError(
            "Of this model's stacks some begin with a norm and some do not; they are not shifted together."
        )
    is_bare = bare.pop()
    for one in model.found:
        _check(one, SHIFTED, "Post-LN shifted, n = norm(x); x = n + f(n)", since=int(is_bare))
        if len(one.final) != 1 or one.embed:
            raise RewireError("The shifted form of Post-LN has one norm after the stack and none before it.")
    return Conversion(
        name="unshift",
        to={"name": "post", "formula": str(POST), "embed": "x" if is_bare else "norm(x)", "final": "x"},
        order=tuple(model.affine(node) for node in model.norms()),
        done=("every norm stands one slot further up, the first one before the stack",),
    )


def _check(one: ReadChain, formula: Formula, said: str, since: int = 0) -> None:
    for number, layer in enumerate(one.layers[since:], start=since + 1):
        words = Formula(layer.text).sublayers
        if layer.text != str(formula.layer(words)):
            raise RewireError(f"This is exact for {said}, and layer {number} is {layer.text}.")


def _words(one: ReadChain) -> tuple[str, ...]:
    return tuple(Formula(one.layers[0].text).sublayers)


def _bare_first(words: tuple[str, ...]) -> Formula:
    """The first layer of a shifted stack that begins with no norm."""
    steps = [f"x = x + {words[0]}(x)", *(f"n = norm(x); x = n + {word}(n)" for word in words[1:])]
    return Formula("; ".join(steps))
