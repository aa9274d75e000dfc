"""Here live the records of a rewiring: the straight-line steps that layers get, and the plan that a user reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from normula.record.base import SCHEMA
from normula.spec.role import Role

Preserved = Literal["function", "function at initialisation", "parameters", "nothing", "unknown"]
"""What stays of a model: its function, exactly; that only while gains are 1 and biases 0; its parameters; nothing.

`unknown` before it was run.
"""

Operand: TypeAlias = str | float
"""The name of a value, or a number."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One value of a layer's straight line.

    Attributes:
        op: `norm`, `gain`, `stop`, `add`, `sub`, `mul`, `div`, `neg`, or a function of a gain; `blend` for the first of
            two values at the start of a move from one formula to another, the second at its end.
        out: the name of the value.
        inputs: what it is made of: earlier values, `x` for the stream before the layers, `f0`, `f1` ... for the outputs
            of the sublayers in the order in which the model runs them.
        place: the module of a norm or the parameter of a gain, below the module that runs the layer.
    """

    op: str
    out: str
    inputs: tuple[Operand, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class InnerNorm:
    """A norm that is put inside a sublayer.

    Attributes:
        part: what it normalises: `q`, `k` or `v` of each head; `heads` or `mid`, which the last projection reads.
        place: its module, below the module that runs the layer.
        factor: by which what is normalised was multiplied before, and is again: of queries that are scaled first.
    """

    part: str
    place: str
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One sublayer as the model's own code runs it.

    Attributes:
        word: of the notation.
        entry: the value that it is given.
        after: the stream after it, where it has a value there; else empty.
        factor: a number that the model multiplies its output by.
        path: of the module that holds it, where its input and output are caught there and not at the sum.
        in_parts: whether several values are added that together are its output.
        shifts: how many constants, such as positions, the model adds to the stream after it.
        inner: norms that are put inside it.
        writer: the matrix of its last projection, below the module that runs the layer.
    """

    word: str
    entry: str
    after: str = ""
    factor: float = 1.0
    path: str = ""
    in_parts: bool = False
    shifts: int = 0
    inner: tuple[InnerNorm, ...] = ()
    writer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one module does to the stream after a rewiring.

    Attributes:
        path: of the module whose forward runs these layers.
        code: the straight line of its layers.
        branches: its sublayers, in the order in which the model runs them.
        scaled: whether the model's own code multiplies the stream by numbers.
        gains: parameters that the model's own code multiplies the stream or a branch by, below the module.
        embed, closing: norms of the stream before and after this module, below it; empty for none.
        argument: of the module's forward, that the stream comes in: its name and its place, which is -1 where the
            stream begins inside.
        begins: then, the norm whose output it begins as, below the module; empty where it is what the first norm of the
            layers is given.
        holds_ends: whether `embed` and `closing` stand inside this module's forward: it runs all layers.
        moves: whether it is a move from another formula: `blend`, ends and norms inside sublayers come in by degrees.
    """

    path: str
    argument: tuple[str, int] = ("", 0)
    begins: str = ""
    holds_ends: bool = False
    code: tuple[Instruction, ...] = ()
    branches: tuple[Branch, ...] = ()
    scaled: bool = False
    gains: tuple[str, ...] = ()
    embed: str = ""
    closing: str = ""
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNorm:
    """A norm that is added.

    Attributes:
        path: of its module.
        kind: its word in the notation; `norm` for that of the model.
        width: features of one token.
        eps: what keeps its divisor from being 0.
        like: the module of a norm of the model that it is made like; empty where it has none of the kind.
        axes: of its input, from the last, that its statistics are over.
        start: of its gain.
        copied: whether it has the values of `like`, not gain 1 and bias 0.
    """

    path: str
    kind: str
    width: int
    eps: float
    like: str = ""
    axes: tuple[int, ...] = (-1,)
    start: float = 1.0
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGain:
    """A learned factor that is added.

    Attributes:
        path: its name.
        width: how many numbers it has, one for each feature; 0 for one number alone.
        start: where they start.
        axis: of the features in the stream, from the last.
    """

    path: str
    width: int
    start: float
    axis: int = -1


@dataclass(frozen=True, slots=True)
class Initial:
    """How a parameter starts that is drawn anew.

    Attributes:
        name: of the parameter.
        role: what it does.
        rule: a named rule.
        sublayers: in all.
        factor: on the draw.
        transposed: whether its matrix is held as (in, out).
    """

    name: str
    role: Role
    rule: str
    sublayers: int
    factor: float = 1.0
    transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All that is done to a copy of a model.

    Attributes:
        scripts: what its modules do after it.
        passing: norms that no longer normalise where the model's own code calls them, each with whether what it made
            was the stream, rather than what a sublayer read or had made.
        removed: those of them that nothing else calls: their parameters go.
        unused: parameters that stay and are no longer read.
        norms, gains: what is added.
        slots: paths of places that a model has for a closing norm and leaves empty, and what goes there.
        bare: the norms on the stream as the model has them, as new ones at their place would be.
        fading: norms before or after a stack that go or come by degrees, each with whether it comes.
    """

    scripts: tuple[Script, ...]
    passing: tuple[tuple[str, bool], ...] = ()
    removed: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    norms: tuple[NewNorm, ...] = ()
    gains: tuple[NewGain, ...] = ()
    slots: tuple[str, ...] = ()
    bare: tuple[NewNorm, ...] = ()
    fading: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: where, what stands there, and what comes instead."""

    where: str
    site: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NormAt:
    """A norm after the rewiring: the path of its module, its site, kind and epsilon, its layer, where it comes from."""

    path: str
    site: str
    kind: str
    eps: float
    layer: int
    origin: Literal["kept", "moved", "copied", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters by name with their number of elements."""

    names: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a rewiring does.

    Attributes:
        to: the wanted placement, by name or formula.
        before, after: the formula of each stage: `encoder.layer x 12: x = ...`.
        changes: one by one.
        norms: on the stream, after it.
        added, removed, unused: parameters.
        notes: what a reader should know: norms that were shared and are copied, what cannot be saved.
        preserved: what stays.
        difference: of the outputs on the example: root mean square of the change over that of the old output.
        proof: `replayed` once the new model was read back.
        operation: for the framework.
    """

    to: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: tuple[Change, ...]
    norms: tuple[NormAt, ...]
    added: Parameters
    removed: Parameters
    unused: Parameters
    notes: tuple[str, ...] = ()
    preserved: Preserved = "unknown"
    difference: float | None = None
    proof: str = "not replayed"
    operation: Operation
    schema: int = SCHEMA
