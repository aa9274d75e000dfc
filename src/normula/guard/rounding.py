"""Whether a norm rounds what it normalised before its gain is applied, or after: two orders, both in use.

Statistics are taken in float32 and the stream may be narrower. Llama rounds `x / rms` to the stream's dtype and
multiplies that by the gain; Gemma multiplies in float32 and rounds the product. In bfloat16 a quarter of the numbers
that come out differ. In one dtype throughout, nothing is rounded and both are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from normula.record.program import Node, Program

BEFORE: Final = "before the gain"
AFTER: Final = "after the gain"

WIDTH: Final = {"float64": 3, "float32": 2, "float16": 1, "bfloat16": 1}
"""Dtypes of real numbers; a step to a lower one rounds."""


def roundings(program: Program) -> Mapping[str, str]:
    """For each parameter that something is multiplied by, where that is rounded, if it is: before or after."""
    users: dict[int, list[int]] = {}
    for number, node in enumerate(program.nodes):
        for one in node.inputs:
            users.setdefault(one, []).append(number)
    found: dict[str, str] = {}
    for number, node in enumerate(program.nodes):
        if node.kind != "parameter":
            continue
        orders = {order for gain in _gains(program, users, number) if (order := _order(program, users, *gain))}
        if len(orders) == 1:
            found.update(dict.fromkeys(node.attrs["names"], orders.pop()))
    return found


def _gains(program: Program, users: Mapping[int, list[int]], number: int) -> Iterator[tuple[int, int]]:
    """The products that a parameter goes into, cast, repeated or with a number added, each with the other factor."""
    for one in users.get(number, ()):
        node = program.nodes[one]
        if node.kind == "mul" and len(node.inputs) == 2:
            yield one, node.inputs[0] if node.inputs[1] == number else node.inputs[1]
        elif node.kind == "view" or (node.kind == "add" and _has_number(program, node)):
            yield from _gains(program, users, one)


def _order(program: Program, users: Mapping[int, list[int]], product: int, factor: int) -> str:
    """Whether a factor was rounded on its way into a product, or the product is on its way out."""
    if _is_rounded(program, factor):
        return BEFORE
    after = [one for one in users.get(product, ()) if program.nodes[one].kind in ("view", "add")]
    return AFTER if any(_rounds(program, one) or _is_sum_rounded(program, users, one) for one in after) else ""


def _is_rounded(program: Program, number: int) -> bool:
    while program.nodes[number].kind == "view":
        if _rounds(program, number):
            return True
        number = program.nodes[number].inputs[0]
    return False


def _is_sum_rounded(program: Program, users: Mapping[int, list[int]], number: int) -> bool:
    """Whether a node is a product plus a bias that is rounded next."""
    is_sum = program.nodes[number].kind == "add"
    return is_sum and any(_rounds(program, one) for one in users.get(number, ()))


def _rounds(program: Program, number: int) -> bool:
    node = program.nodes[number]
    if node.kind != "view":
        return False
    before = WIDTH.get(program.nodes[node.inputs[0]].dtype)
    after = WIDTH.get(node.dtype)
    return before is not None and after is not None and after < before


def _has_number(program: Program, node: Node) -> bool:
    return any(program.nodes[one].kind == "constant" for one in node.inputs)
