"""Which module each node was computed in, for naming: by the model's own marks, or by the parameters that are read.

JAX knows no modules. Where a model does not mark its operations, one that reads a parameter happens where that stands
in the tree; those between happen in what the ones before and after have in common, the last of an item of a list
still in that item.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from normula.record.program import Call

Label: TypeAlias = tuple[str, ...]


def filled(labels: Sequence[Label | None], floors: Sequence[Label]) -> list[Label]:
    """Labels for the nodes that have none; a node of a scan's step stays in it, and one after it outside."""
    following: list[tuple[Label, Label]] = []
    after: tuple[Label, Label] = ((), ())
    for own, floor in zip(reversed(labels), reversed(floors), strict=True):
        after = after if own is None else (own, floor)
        following.append(after)
    found: list[Label] = []
    before: tuple[Label, Label] = ((), ())
    for own, floor, later in zip(labels, floors, reversed(following), strict=True):
        first, last = (one if where == floor else floor for one, where in (before, later))
        label = _between(first, last) if own is None else own
        found.append(label if label[: len(floor)] == floor else floor)
        before = before if own is None else (own, floor)
    return found


def calls(labels: Sequence[Label], inside: Sequence[bool]) -> tuple[tuple[Call, ...], list[int]]:
    """The calls of modules, and for each node the one that it was made in; nodes that are not inside have the first."""
    made = [Call("", 0, -1)]
    kinds: dict[str, int] = {"": 0}
    stack: list[tuple[Label, int]] = [((), 0)]
    found: list[int] = []
    for label, counts in zip(labels, inside, strict=True):
        if not counts:
            found.append(0)
            continue
        levels = _levels(label)
        depth = 0
        while depth < len(levels) and depth + 1 < len(stack) and stack[depth + 1][0] == levels[depth]:
            depth += 1
        del stack[depth + 1 :]
        for level in levels[depth:]:
            path = ".".join(level)
            kind = kinds.setdefault(_plain(path), len(kinds))
            made.append(Call(path, kind, stack[-1][1]))
            stack.append((level, len(made) - 1))
        found.append(stack[-1][1])
    return tuple(made), found


def _levels(label: Label) -> list[Label]:
    """The paths of the modules around a node, outermost first; a list is none, its items are."""
    return [label[:end] for end in range(1, len(label) + 1) if end == len(label) or not label[end].isdigit()]


def _between(before: Label, after: Label) -> Label:
    """Where a node happens that reads no parameter."""
    depth = 0
    while depth < min(len(before), len(after)) and before[depth] == after[depth]:
        depth += 1
    for end in (depth + 1, depth + 2):
        if end <= len(before) and before[end - 1].isdigit():
            return before[:end]
    if depth < len(before) and _plain(before[depth]) != before[depth]:
        return before[: depth + 1]
    return before[:depth]


def _plain(path: str) -> str:
    return re.sub(r"\d+", "*", path)
