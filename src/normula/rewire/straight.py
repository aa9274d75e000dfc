"""A layer's formula as a straight line of instructions, in the running order of the formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from normula.formula import Formula
from normula.formula.run import Runner
from normula.formula.tree import Call, Gain
from normula.formula.words import STREAM, SUBLAYERS
from normula.record.rewiring import Instruction, Operand

FUNCTIONS = ("silu", "sigmoid", "sqrt", "log", "ramp")


@dataclass(frozen=True, slots=True)
class Value:
    """A value on the line; arithmetic on it writes instructions."""

    line: Line
    name: str

    def __add__(self, other: Value | float) -> Value:
        return self.line.write("add", self, other)

    def __radd__(self, other: float) -> Value:
        return self.line.write("add", other, self)

    def __sub__(self, other: Value | float) -> Value:
        return self.line.write("sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.line.write("sub", other, self)

    def __mul__(self, other: Value | float) -> Value:
        return self.line.write("mul", self, other)

    def __rmul__(self, other: float) -> Value:
        return self if other == 1.0 else self.line.write("mul", other, self)

    def __truediv__(self, other: Value | float) -> Value:
        return self if other == 1.0 else self.line.write("div", self, other)

    def __neg__(self) -> Value:
        return self.line.write("neg", self)


class Line:
    """The instructions of some layers one after another, and what their sublayers read and leave.

    Attributes:
        code: the instructions.
        stream: the stream as it is at the end of what was written.
        entries: for each sublayer the value that it is given.
        after: for each sublayer the stream after it, where it has a value there.
    """

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.stream = Value(self, STREAM)
        self.entries: dict[int, str] = {}
        self.after: dict[int, str] = {}

    def write(self, op: str, *inputs: Value | float, place: str = "") -> Value:
        """A new value."""
        name = f"v{len(self.code)}"
        operands: tuple[Operand, ...] = tuple(one.name if isinstance(one, Value) else one for one in inputs)
        self.code.append(Instruction(op, name, operands, place))
        return Value(self, name)

    def layer(
        self,
        formula: Formula,
        symbols: Mapping[str, float],
        places: Mapping[int, str],
        numbers: Mapping[int, int],
    ) -> None:
        """Write one more layer.

        Args:
            formula: of a layer, with named sublayers.
            symbols: depths.
            places: where each norm and gain lives, by its index.
            numbers: for the index of each sublayer, its number in the order in which the model runs them.
        """
        ran: list[int] = []

        def call(what: Call, value: Value) -> Value:
            if what.word == "stop":
                return self.write("stop", value)
            if what.word not in SUBLAYERS:
                return self.write("norm", value, place=places[what.index])
            number = numbers[what.index]
            self.entries[number] = value.name
            ran.append(number)
            return Value(self, f"f{number}")

        def gain(what: Gain) -> Value:
            return self.write("gain", place=places[what.index])

        functions = {word: lambda value, word=word: self.write(word, value) for word in FUNCTIONS}
        runner = Runner(symbols, call, gain, functions)
        names: dict[str, Value] = {STREAM: self.stream}
        for statement in formula.tree.statements:
            names[statement.name] = runner.value(statement.value, names)
            if statement.name == STREAM and ran:
                self.after[max(ran)] = names[STREAM].name
        self.stream = names[STREAM]
