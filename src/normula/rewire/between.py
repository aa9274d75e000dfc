"""An operation after which a model stands between its own formula and another one: both lines, blended.

Each sublayer is run once. What it is given, and the stream after it where both formulas have a value there, are blends
of what the two say; so both lines go on from one stream, and what they compute alike is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from normula.record.rewiring import Instruction, Operand, Operation, Script
from normula.rewire.errors import RewireError
from normula.rewire.operation import below
from normula.rewire.retrace import retraced
from normula.rewire.straight import Line
from normula.rewire.understood import Understood


def between(model: Understood, new: Operation) -> Operation:
    """The operation that takes a model to where a move begins, from the one that rewires it.

    Raises:
        RewireError: the two formulas cannot be blended.
    """
    stepped = {one.path for one in new.scripts if one.branches}
    inside = {
        norm.path for stack in model.stacks for layer in stack.layers if layer.path in stepped for norm in layer.norms
    }
    ends = tuple(path for path, _ in new.passing if path not in inside)
    return replace(
        new,
        scripts=tuple(_script(model, one, ends) for one in new.scripts),
        passing=tuple(one for one in new.passing if one[0] in inside),
        removed=(),
        fading=(*((path, False) for path in ends), *((path, True) for path in new.slots)),
    )


def _script(model: Understood, new: Script, ends: tuple[str, ...]) -> Script:
    """A script that moves to another one from what the layers of its module do."""
    if not new.branches:
        return replace(new, moves=True)
    for stack, chain in zip(model.stacks, model.found, strict=True):
        layers = [one for part, one in zip(stack.layers, chain.layers, strict=True) if part.path == new.path]
        if layers:
            line = retraced(model.graph, layers, new.path)
            fades = bool(stack.embed) and stack.embed[-1].path in ends and new.argument[1] < 0
            return replace(_blended(line, new), begins=below(stack.embed[-1].path, new.path) if fades else new.begins)
    raise AssertionError(f"{new.path} runs no layer")


def _blended(old: Line, new: Script) -> Script:
    """The script of two lines."""
    last = len(new.branches) - 1
    if set(old.entries) != set(range(len(new.branches))) or not (old.after.get(last) and new.branches[last].after):
        raise RewireError(
            f"The layers of {new.path or 'the model'} as they are and as they are wanted have no value of the stream "
            "in common at their end, so nothing can stand between the two."
        )
    blending = _Blending(old, new)
    branches = tuple(
        replace(
            branch, entry=blending.blend(old.entries[place], branch.entry), after=blending.after(place, branch.after)
        )
        for place, branch in enumerate(new.branches)
    )
    return replace(new, code=tuple(blending.code), branches=branches, moves=True)


class _Blending:
    """Two lines as one; equal instructions become one.

    Attributes:
        code: the instructions.
    """

    def __init__(self, old: Line, new: Script) -> None:
        self.code: list[Instruction] = []
        self.made: dict[tuple[str, tuple[Operand, ...], str], str] = {}
        self.lines: tuple[Mapping[str, Instruction], ...] = tuple(
            {one.out: one for one in code} for code in (old.code, new.code)
        )
        self.known: tuple[dict[str, str], ...] = ({}, {})
        self.old = old

    def after(self, place: int, wanted: str) -> str:
        """The stream after a sublayer, from which both lines go on; empty where one of them has no value there."""
        names = (self.old.after.get(place, ""), wanted)
        if not all(names):
            return ""
        stream = self.blend(*names)
        for known, name in zip(self.known, names, strict=True):
            known[name] = stream
        return stream

    def blend(self, old: str, new: str) -> str:
        """Between a value of one line and a value of the other."""
        ends = (self._copied(0, old), self._copied(1, new))
        return ends[0] if ends[0] == ends[1] else self._written("blend", ends, "")

    def _copied(self, side: int, name: str) -> str:
        """What a value of a line is called in both."""
        known, line = self.known[side], self.lines[side]
        if name not in line:
            return name
        if name not in known:
            one = line[name]
            inputs = tuple(self._copied(side, value) if isinstance(value, str) else value for value in one.inputs)
            known[name] = self._written(one.op, inputs, one.place)
        return known[name]

    def _written(self, op: str, inputs: tuple[Operand, ...], place: str) -> str:
        key = (op, inputs, place)
        if key not in self.made:
            self.made[key] = f"v{len(self.code)}"
            self.code.append(Instruction(op, self.made[key], inputs, place))
        return self.made[key]
