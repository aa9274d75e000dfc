"""Here lives Program: what one forward pass computed, as a straight line of nodes in a small closed vocabulary.

A framework's room writes it, `read` analyses it. Views and in-place operations are resolved: every node is one
value that never changes. Nothing here says what a module is called, except `Call`, which is for naming only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    # leaves
    "parameter",  # attrs: names, a tuple: tied ones have several
    "buffer",  # attrs: names
    "input",  # attrs: name
    "constant",  # attrs: value, where it is one number
    # re-layouts of the first input: the others are indices, masks and fills that say which elements go where
    "view",
    "gather",
    "lookup",  # rows of a learned table
    "join",  # of all inputs, one after another
    "write",  # the first input with the others written into it
    # arithmetic
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "pow",
    "sqrt",
    "rsqrt",
    "pointwise",  # any other function of one or more values, element by element; attrs: name
    "compare",  # a truth value or a whole number of each element
    "reduce",  # attrs: name (mean, var, std, sum, max, norm2 ...), axes
    # what layers are made of
    "matmul",
    "conv",  # attrs: spatial (window sizes), groups
    "attention",  # softmax(q k^T) v in one; inputs q, k, v, and a mask
    "softmax",
    "norm",  # attrs: name (layernorm, rmsnorm, groupnorm, l2norm), axes, eps, gain, bias (places in inputs, or -1)
    "batchnorm",
    "pool",
    "fft",
    "resample",
    "choose",  # topk, sort, argmax: attrs: name
    "scan",  # cumulative sums and products
    "recurrence",  # a whole recurrent network in one
    "opaque",  # attrs: name
]

LEAVES: Final = frozenset(("parameter", "buffer", "input", "constant"))


@dataclass(frozen=True, slots=True)
class Node:
    """One value.

    Attributes:
        kind: how it was made.
        inputs: the numbers of the nodes that it was made from.
        shape, dtype: of the value.
        call: index of the innermost module call that it was made in.
        attrs: what the kind says of it.
    """

    kind: Kind
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    call: int = 0
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many elements it has."""
        size = 1
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a module: its path, which of the program's classes it is of, and the call that it was made in."""

    path: str
    kind: int
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One forward pass.

    Attributes:
        nodes: in the order in which they were computed.
        outputs: the nodes that the model returned.
        calls: the calls of modules; the first is the model itself.
        uncalled: paths of modules that hold nothing but vectors, as norms do, and were never called.
        fused: whether an ordinary forward would take a fused path that hides the modules.
        real: whether values were computed, or only their shapes.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]
    uncalled: tuple[str, ...] = ()
    fused: bool = False
    real: bool = True
