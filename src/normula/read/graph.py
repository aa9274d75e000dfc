"""Here lives Graph: a Program made ready for analysis: who reads what, and what each value depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from normula.record.program import LEAVES, Node, Program

SIMPLE: Final = frozenset(
    ("view", "gather", "join", "write", "add", "sub", "mul", "div", "neg", "pow", "sqrt", "rsqrt")
) | {"pointwise", "reduce", "resample", "norm", "softmax", "scan"}
"""What a weight may go through and still be a weight: re-parametrisations, folded scales, resized position tables."""

MIXERS: Final = frozenset(("pool", "fft", "recurrence", "attention"))


class Graph:
    """The nodes of a Program, by number, with what analysis asks of them.

    Attributes:
        nodes: the nodes; recognised norms take the place of the arithmetic that they were written in.
        users: for each node, those that read it and from which an output can be reached.
        unlearned: whether a node depends on no parameter and on no input of floating-point numbers.
        weight: whether a node is made of parameters by simple arithmetic.
        given: whether a node depends on an input of the model.
    """

    def __init__(self, program: Program, nodes: list[Node] | None = None) -> None:
        self.program = program
        self.nodes: list[Node] = list(program.nodes) if nodes is None else nodes
        self.alive = self._alive()
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            if self.alive[number]:
                for one in dict.fromkeys(node.inputs):
                    self.users[one].append(number)
        self.unlearned: list[bool] = []
        self.weight: list[bool] = []
        self.given: list[bool] = []
        for node in self.nodes:
            self._judge(node)

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def __len__(self) -> int:
        return len(self.nodes)

    def kind(self, number: int) -> str:
        return self.nodes[number].kind

    def inputs(self, number: int) -> tuple[int, ...]:
        return self.nodes[number].inputs

    def replaced(self, changes: dict[int, Node]) -> Graph:
        """The graph with other nodes in some places."""
        return Graph(self.program, [changes.get(number, node) for number, node in enumerate(self.nodes)])

    # ---- what a value is

    def number(self, number: int) -> float | None:
        """The one number that a constant holds, seen through views."""
        node = self.nodes[number]
        while node.kind == "view" and "number" not in node.attrs:
            node = self.nodes[node.inputs[0]]
        value = node.attrs.get("number") if node.kind in ("constant", "buffer") else None
        return None if value is None else float(value)

    def is_weight(self, number: int) -> bool:
        return self.weight[number]

    def is_gain(self, number: int) -> bool:
        """Whether a value is a learned factor: one number, or one for each feature."""
        return self.weight[number] and sum(length > 1 for length in self.nodes[number].shape) <= 1

    def is_constant(self, number: int) -> bool:
        """Whether a value has nothing to do with what flows: weights, tables, masks, positions."""
        if self.weight[number] or self.unlearned[number]:
            return True
        node = self.nodes[number]
        while node.kind in ("view", "gather", "resample"):
            node = self.nodes[node.inputs[0]]
        if node.kind == "join":
            return all(self.is_constant(one) for one in node.inputs)
        return node.kind == "lookup" and not self.given[node.inputs[1]]

    def is_product(self, number: int) -> bool:
        """Whether a node is a product with a learned or fixed matrix, or a convolution."""
        node = self.nodes[number]
        if node.kind == "matmul":
            return any(self.weight[one] or self.unlearned[one] for one in node.inputs[:2])
        return node.kind in ("conv", "recurrence")

    def is_mixing(self, number: int) -> bool:
        """Whether a node is what a sublayer is made of: a learned product, or a mixer without parameters."""
        return self.is_product(number) or self.nodes[number].kind in MIXERS or self._is_mean_of_tokens(number)

    def _is_mean_of_tokens(self, number: int) -> bool:
        """Whether a node is the mean of a sequence of tokens, (B, T, D) to (B, D)."""
        node = self.nodes[number]
        return (
            node.kind == "reduce"
            and node.attrs["name"] == "mean"
            and (node.attrs["axes"] == (1,) and len(self.nodes[node.inputs[0]].shape) == 3)
        )

    def is_data_product(self, number: int) -> bool:
        """Whether a node multiplies matrices that both flow, as queries with keys."""
        node = self.nodes[number]
        return node.kind == "matmul" and not self.is_product(number)

    def parameters(self, number: int) -> tuple[str, ...]:
        """Names of the parameters that a weight is made of."""
        found: dict[str, None] = {}
        stack, seen = [number], {number}
        while stack:
            node = self.nodes[stack.pop()]
            if node.kind == "parameter":
                found[node.attrs["names"][0]] = None
            for one in node.inputs:
                if self.weight[one] and one not in seen:
                    seen.add(one)
                    stack.append(one)
        return tuple(found)

    def path(self, number: int) -> str:
        """The path of the innermost module that a node was computed in."""
        return self.program.calls[self.nodes[number].call].path

    def calls(self, number: int) -> tuple[int, ...]:
        """The calls of modules that a node was computed in, outermost first."""
        found: list[int] = []
        call = self.nodes[number].call
        while call >= 0:
            found.append(call)
            call = self.program.calls[call].parent
        return tuple(reversed(found))

    # ---- walking

    def behind(self, number: int, since: int) -> set[int]:
        """The nodes from number `since` on that a node is made from, with itself."""
        found = {number}
        stack = [number]
        while stack:
            for one in self.nodes[stack.pop()].inputs:
                if one >= since and one not in found:
                    found.add(one)
                    stack.append(one)
        return found

    def between(self, source: int, end: int) -> list[int]:
        """The nodes on the ways from one node to another, in order; empty where there is none."""
        behind = self.behind(end, source)
        if source not in behind:
            return []
        reached = {source}
        for number in sorted(behind):
            if any(one in reached for one in self.nodes[number].inputs):
                reached.add(number)
        return sorted(reached)

    def leaves(self) -> Iterator[tuple[int, Node]]:
        for number, node in enumerate(self.nodes):
            if node.kind in LEAVES:
                yield number, node

    def _alive(self) -> list[bool]:
        alive = [False] * len(self.nodes)
        for number in self.program.outputs:
            alive[number] = True
        for number in range(len(self.nodes) - 1, -1, -1):
            if alive[number]:
                for one in self.nodes[number].inputs:
                    alive[one] = True
        return alive

    def _judge(self, node: Node) -> None:
        inputs = node.inputs
        self.given.append(node.kind == "input" or any(self.given[one] for one in inputs))
        if node.kind in LEAVES:
            flows = node.kind == "input" and node.dtype.startswith(("float", "bfloat", "complex"))
            self.unlearned.append(node.kind != "parameter" and not flows)
            self.weight.append(node.kind == "parameter")
            return
        unlearned = all(self.unlearned[one] for one in inputs)
        self.unlearned.append(unlearned)
        made = node.kind in SIMPLE and not unlearned
        self.weight.append(made and all(self.weight[one] or self.unlearned[one] for one in inputs))
