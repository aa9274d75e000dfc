"""Norms: fused ones, and those that are written out.

    layernorm   (x - mean(x)) / sqrt(var(x) + eps)
    rmsnorm     x / sqrt(mean(x**2) + eps)
    l2norm      x / max(sqrt(sum(x**2)), eps), or x / sqrt(sum(x**2) + eps)

each with casts in between, and a learned gain and bias after it, such as `w` or `1 + w`. An affine map without
statistics is no norm; neither is a batch norm, whose statistics belong to the data set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from normula.read.graph import Graph
from normula.record.program import Node

NAMES = {
    "layernorm": "LayerNorm",
    "rmsnorm": "RMSNorm",
    "groupnorm": "GroupNorm",
    "l2norm": "L2Norm",
    "dyt": "DyT",
    "derf": "Derf",
}


@dataclass(frozen=True, slots=True)
class _Match:
    """A norm that was found written out: its input, and what the statistics are.

    Attributes:
        under: epsilon under the root.
        outside: epsilon outside of it: what is added to the root, or with `is_floor` the least that it may be.
        scale: a number that it multiplies by, as where the variance is not biased.
        gain: that it multiplies its input by, before it divides; -1 for none.
    """

    name: str
    source: int
    axes: tuple[int, ...]
    eps: float
    under: float
    outside: float = 0.0
    is_floor: bool = False
    dtype: str = "float32"
    scale: float = 1.0
    gain: int = -1


def with_norms(graph: Graph) -> Graph:
    """The graph with every norm that is written out as one node."""
    changes: dict[int, Node] = {}
    for number, node in enumerate(graph.nodes):
        if graph.alive[number] and node.kind in ("mul", "div"):
            match = _match(graph, number)
            if match is not None:
                start, match = _from_length(graph, number, match)
                end, gain, bias = _affine(graph, start, match.gain)
                changes[end] = _norm(graph, end, match, gain, bias)
        if graph.alive[number] and node.kind == "norm" and len(node.inputs) == 1 and is_norm(graph, number):
            end, gain, bias = _affine(graph, number)
            if end != number:
                eps = node.attrs["eps"]
                match = _Match(node.attrs["name"], node.inputs[0], node.attrs["axes"], eps, eps)
                changes[end] = _norm(graph, end, match, gain, bias)
        if graph.alive[number] and node.kind == "pointwise" and node.attrs["name"] in _BOUNDED:
            changes |= _bounded(graph, number)
    return graph.replaced(changes) if changes else graph


_BOUNDED = {"tanh": "dyt", "erf": "derf"}


def _bounded(graph: Graph, number: int) -> dict[int, Node]:
    """Dynamic tanh or erf: a learned number times x, perhaps shifted by one, bounded, then a gain for each feature."""
    node = graph[number]
    inner = graph[node.inputs[0]]
    shift = -1
    if inner.kind == "add" and len(inner.inputs) == 2 and graph.is_weight(inner.inputs[1]):
        shift, inner = inner.inputs[1], graph[inner.inputs[0]]
    if inner.kind != "mul" or len(inner.inputs) != 2:
        return {}
    alpha, source = sorted(inner.inputs, key=lambda one: not graph.is_weight(one))
    end, gain, bias = _affine(graph, number)
    if not graph.is_weight(alpha) or graph[alpha].size != 1 or graph.is_weight(source) or gain < 0:
        return {}
    match = _Match(_BOUNDED[node.attrs["name"]], source, (len(graph[source].shape) - 1,), 0.0, 0.0)
    found = _norm(graph, end, match, gain, bias)
    inputs = (*found.inputs, alpha, *((shift,) if shift >= 0 else ()))
    attrs = {**found.attrs, "alpha": len(found.inputs), "shift": len(found.inputs) + 1 if shift >= 0 else -1}
    return {end: replace(found, inputs=inputs, attrs=attrs)}


def is_norm(graph: Graph, number: int) -> bool:
    """Whether a node normalises all features of a token together."""
    node = graph[number]
    return node.kind == "norm" and node.attrs.get("groups", 1) == 1


def under_root(node: Node) -> float:
    """What a norm adds to the square of its divisor: epsilon, or nearly its square where it is outside of the root."""
    return float(node.attrs.get("under", node.attrs["eps"]) + node.attrs.get("outside", 0.0) ** 2)


def statistics(node: Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The axes, from the last, that a norm's mean is taken over in an input of a shape; and how many numbers that is.

    With as many groups as channels, these are the axes of the positions alone.
    """
    axes, groups = tuple(node.attrs["axes"]), node.attrs.get("groups", 1)
    if len(axes) > 1 and groups == shape[axes[0]] > 1:
        axes, groups = axes[1:], 1
    width = 1
    for axis in axes:
        width *= shape[axis]
    return tuple(axis - len(shape) for axis in axes), width // groups


def _norm(graph: Graph, end: int, match: _Match, gain: int, bias: int) -> Node:
    inputs, places = [match.source], {"gain": -1, "bias": -1}
    for label, one in (("gain", gain), ("bias", bias)):
        if one >= 0:
            places[label] = len(inputs)
            inputs.append(one)
    eps = float(f"{match.eps:.7g}")  # single precision makes 9.9999997e-6 of 1e-5
    kind = {"name": match.name, "axes": match.axes, "groups": 1, "dtype": match.dtype}
    root = {"under": match.under, "outside": match.outside, "floor": match.is_floor}
    attrs = {**kind, "eps": eps, **root, "scale": match.scale, **places}
    node = graph[end]
    return Node("norm", tuple(inputs), node.shape, node.dtype, node.call, attrs)


def _from_length(graph: Graph, number: int, match: _Match) -> tuple[int, _Match]:
    """The root of the width times a vector of length 1 is an RMS norm: sqrt(D) x / |x|."""
    users = graph.users[number]
    width = 1
    for axis in match.axes:
        width *= graph[match.source].shape[axis]
    if match.name == "l2norm" and len(users) == 1 and graph.kind(users[0]) == "mul":
        for one in graph.inputs(users[0]):
            factor = graph.number(one)
            if factor is not None and abs(factor - width**0.5) < 1e-4 * factor:
                under, eps = match.under / width, match.eps if match.outside else match.eps / width
                outside = match.outside / width**0.5
                return users[0], replace(match, name="rmsnorm", eps=eps, under=under, outside=outside)
    return number, match


def _match(graph: Graph, number: int) -> _Match | None:
    """The norm whose last step is this product or quotient."""
    node = graph[number]
    if len(node.inputs) != 2:
        return None
    left, right = node.inputs
    pairs = [(left, right)] if node.kind == "div" else [(left, right), (right, left)]
    for value, factor in pairs:
        root = _root(graph, factor) if node.kind == "div" else _inverse_root(graph, factor)
        if root is None:
            continue
        first = graph[_bare(graph, value)]
        ways = [(value, -1)]
        if first.kind == "mul" and len(first.inputs) == 2:
            ways += [(one, other) for one, other in (first.inputs, first.inputs[::-1]) if _is_vector(graph, other)]
        for one, gain in ways:
            if (match := _statistics(graph, one, root)) is not None:
                return replace(match, dtype=graph[root.radicand].dtype, gain=gain, is_floor=root.is_floor)
    return None


@dataclass(frozen=True, slots=True)
class _Root:
    """A divisor: a number times the root of what is here, with epsilon under the root, or outside of all."""

    radicand: int
    under: float = 0.0
    outside: float = 0.0
    is_floor: bool = False
    factor: float = 1.0

    @property
    def eps(self) -> float:
        """As it is written."""
        return self.under or self.outside


def _inverse_root(graph: Graph, factor: int) -> _Root | None:
    """The divisor that a factor is 1 over."""
    node = graph[_repeated(graph, factor)]
    if node.kind == "rsqrt" or _is_power(graph, node, -0.5):
        return _Root(*_plus(graph, node.inputs[0])[:2])
    if node.kind == "pointwise" and node.attrs["name"] == "reciprocal":
        return _root(graph, node.inputs[0])
    if node.kind == "div" and graph.number(node.inputs[0]) == 1:
        return _root(graph, node.inputs[1])
    return None


def _is_power(graph: Graph, node: Node, exponent: float) -> bool:
    return node.kind == "pow" and len(node.inputs) == 2 and graph.number(node.inputs[1]) == exponent


def _root(graph: Graph, divisor: int) -> _Root | None:
    """A divisor sqrt(...), or the deviation or length that it is, or a number times one."""
    inner, outside, is_floor = _plus(graph, divisor)
    node = graph[_repeated(graph, inner)]
    if node.kind == "sqrt" or _is_power(graph, node, 0.5):
        radicand, inside, _ = _plus(graph, node.inputs[0])
        return _Root(radicand, inside, outside, is_floor)
    if node.kind == "reduce" and node.attrs["name"] in ("std", "norm2"):
        return _Root(inner, 0.0, outside, is_floor)
    if node.kind in ("mul", "div") and (number := graph.number(node.inputs[1])):
        factor = number if node.kind == "mul" else 1 / number
        length = _repeated(graph, node.inputs[0])
        if graph.kind(length) == "reduce" and graph[length].attrs["name"] == "norm2":
            return _Root(length, 0.0, outside, is_floor, factor)
    return None


def _plus(graph: Graph, number: int) -> tuple[int, float, bool]:
    """A value and the small number that is added to it, or below which it does not go, and whether it is the latter."""
    number = _repeated(graph, number)
    node = graph[number]
    if node.kind == "add" and len(node.inputs) == 2:
        for value, other in (node.inputs, node.inputs[::-1]):
            if (eps := graph.number(other)) is not None:
                return _bare(graph, value), eps, False
    if node.kind == "pointwise" and node.attrs["name"] in ("clamp", "clamp_min", "maximum"):
        low = [graph.number(one) for one in node.inputs[1:]]
        return _bare(graph, node.inputs[0]), next((one for one in low if one is not None), 0.0), True
    return number, 0.0, False


def _statistics(graph: Graph, value: int, root: _Root) -> _Match | None:
    """The norm that divides a value by a root."""
    bare, eps, under, outside = _bare(graph, value), root.eps, root.under, root.outside
    node = graph[_repeated(graph, root.radicand)]
    centre = _centred(graph, bare)
    if node.kind in ("div", "mul") and (inner := graph[_bare(graph, node.inputs[0])]).kind == "reduce":
        size = graph.number(node.inputs[1])
        length = _length(graph, inner)
        if inner.attrs["name"] == "sum" and size is not None:
            factor = size if node.kind == "div" else 1 / size
            if abs(factor - length) < 1e-6 * length:
                node = Node(
                    "reduce", inner.inputs, inner.shape, inner.dtype, inner.call, {**inner.attrs, "name": "mean"}
                )
    if node.kind == "sub":
        return _difference(graph, bare, centre, node, root)
    if node.kind != "reduce":
        return None
    name, axes, source = node.attrs["name"], node.attrs["axes"], node.inputs[0]
    if name in ("var", "std"):
        of = _bare(graph, source)
        if centre is not None and of in (centre, bare):
            length = _length(graph, node)
            excess = length / max(length - node.attrs.get("correction", 0.0), 1.0)
            return _Match("layernorm", centre, axes, eps, under / excess, outside / excess**0.5, scale=excess**-0.5)
        return None
    squared = _bare(graph, source) if name == "norm2" else _square(graph, source)
    if squared is None:
        return None
    if (
        name == "mean"
        and centre is not None
        and centre in (_centred(graph, squared), squared if squared == bare else None)
    ):
        return _Match("layernorm", centre, axes, eps, under, outside)
    if name == "mean" and squared == bare:
        return _Match("rmsnorm", bare, axes, eps, under, outside)
    if name in ("sum", "norm2") and squared == bare:
        length = _length(graph, node)
        if abs(root.factor * length**0.5 - 1) < 1e-4:  # the root of a mean, from a length
            return _Match("rmsnorm", bare, axes, eps, under / length, outside)
        return _Match("l2norm", bare, axes, eps, under, outside / root.factor, scale=1 / root.factor)
    return None


def _difference(graph: Graph, bare: int, centre: int | None, node: Node, root: _Root) -> _Match | None:
    """The variance as mean(x**2) - mean(x)**2."""
    whole, part = graph[_bare(graph, node.inputs[0])], _square(graph, node.inputs[1])
    if part is None or whole.kind != "reduce" or whole.attrs["name"] != "mean" or centre is None:
        return None
    mean = graph[part]
    if mean.kind != "reduce" or mean.attrs["name"] != "mean" or _square(graph, whole.inputs[0]) != centre:
        return None
    is_whole = _bare(graph, mean.inputs[0]) == centre
    return _Match("layernorm", centre, whole.attrs["axes"], root.eps, root.under, root.outside) if is_whole else None


def _centred(graph: Graph, number: int) -> int | None:
    """x, where a value is x - mean(x)."""
    node = graph[number]
    if node.kind != "sub" or len(node.inputs) != 2:
        return None
    source, mean = _bare(graph, node.inputs[0]), graph[_repeated(graph, node.inputs[1])]
    is_mean = mean.kind == "reduce" and mean.attrs["name"] == "mean" and _bare(graph, mean.inputs[0]) == source
    return source if is_mean else None


def _square(graph: Graph, number: int) -> int | None:
    """b, where a value is b squared."""
    node = graph[_bare(graph, number)]
    if node.kind == "pow" and len(node.inputs) == 2 and graph.number(node.inputs[1]) == 2:
        return _bare(graph, node.inputs[0])
    if node.kind == "mul" and _bare(graph, node.inputs[0]) == _bare(graph, node.inputs[-1]):
        return _bare(graph, node.inputs[0])
    if node.kind == "pointwise" and node.attrs["name"] == "square":
        return _bare(graph, node.inputs[0])
    return None


def _length(graph: Graph, node: Node) -> float:
    """How many elements a reduction takes together."""
    length = 1
    for axis in node.attrs["axes"]:
        length *= graph[node.inputs[0]].shape[axis]
    return float(length)


def _repeated(graph: Graph, number: int) -> int:
    """A factor before it is cast or repeated along its axes."""
    number = _bare(graph, number)
    while graph.kind(number) == "view" and graph[number].attrs.get("name") in _REPEATS:
        number = _bare(graph, graph.inputs(number)[0])
    return number


def _bare(graph: Graph, number: int) -> int:
    """A value without the casts around it."""
    node = graph[number]
    while node.kind == "view" and (node.attrs.get("name") in _SAME or node.shape == graph[node.inputs[0]].shape):
        if node.attrs.get("name") in _MOVED:
            return number
        number = node.inputs[0]
        node = graph[number]
    return number


_SAME = frozenset(("_to_copy", "clone", "contiguous", "alias", "detach"))
_REPEATS = ("expand", "unsqueeze", "squeeze", "repeat")
_MOVED = frozenset(
    ("transpose", "permute", "t", "flip", "roll", "mask", "masked_fill", "tril", "triu", "constant_pad_nd")
)


def _affine(graph: Graph, number: int, gain: int = -1) -> tuple[int, int, int]:
    """The last node of a norm with its learned gain and bias, and these; -1 where there is none."""
    bias = -1
    end = number
    while True:
        users = graph.users[end]
        if len(users) != 1:
            return _uncast(graph, end, number), gain, bias
        node = graph[users[0]]
        if node.kind == "view" and node.attrs.get("name") in ("_to_copy", "clone"):
            end = users[0]
        elif node.kind == "mul" and gain < 0 and bias < 0 and (other := _other(graph, node, end)) >= 0:
            end, gain = users[0], other
        elif node.kind == "add" and bias < 0 and (other := _other(graph, node, end)) >= 0:
            end, bias = users[0], other
        else:
            return _uncast(graph, end, number), gain, bias


def _uncast(graph: Graph, end: int, start: int) -> int:
    """A norm ends with its arithmetic, not with a cast after it."""
    while end != start and graph.kind(end) == "view":
        end = graph.inputs(end)[0]
    return end


def _other(graph: Graph, node: Node, number: int) -> int:
    """The other operand of a product or sum, where it is a learned vector; else -1."""
    if len(node.inputs) != 2:
        return -1
    other = node.inputs[1] if node.inputs[0] == number else node.inputs[0]
    return other if _is_vector(graph, other) else -1


def _is_vector(graph: Graph, number: int) -> bool:
    return graph.is_gain(number) and graph[number].size > 1
