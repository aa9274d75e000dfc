"""Merge norms in succession; a redundant final norm, after a norm that closes the last layer, is such a case.

    norm2(norm1(x)) = g2 s (x - mean) / sqrt(var + e) + b2,   s = sign(c) / sqrt(1 + e2 / c^2),   e = e1 e2 / (c^2 + e2)

with norm1's gain one number c and its bias one number. Where its gain differs between features, what norm2 divides by
depends on the token in another way than what norm1 divides by, and one norm cannot do what both do.
"""

from __future__ import annotations

import math

from normula.record.conversion import Affine, Conversion, Merge
from normula.rewire.conversions.model import Model
from normula.rewire.errors import RewireError

STATISTICS = ("layernorm", "rmsnorm")


def merge(model: Model) -> Conversion:
    """Merge every norm that follows another one, where that is exact.

    Raises:
        RewireError: there is none; the message says why.
    """
    found: list[Merge] = []
    left: list[str] = []
    graph = model.graph
    for node, one in enumerate(graph.nodes):
        if one.kind == "norm" and graph.alive[node] and graph.kind(model.source(node)) == "norm":
            first, second = model.affine(model.source(node)), model.affine(node)
            merged = _merged(model, model.source(node), node, first, second)
            if isinstance(merged, str):
                left.append(f"{first.path}, {second.path}: {merged}")
            else:
                found.append(merged)
    if not found:
        reasons = f"not exactly here: {'; '.join(left)}." if left else "and here none follows another."
        raise RewireError(f"Norms are merged where one directly follows another, {reasons}")
    return Conversion(
        name="merge",
        edits=tuple(found),
        done=tuple(f"{one.first.path} does what {one.second.path} did after it, eps {one.eps:g}" for one in found),
        left=tuple(left),
        fixed=tuple(name for one in found for name in one.first.parameters),
        added=-sum(model.values.size(name) for one in found for name in one.second.parameters),
    )


def _merged(model: Model, one: int, other: int, first: Affine, second: Affine) -> Merge | str:
    if {user for user, _ in model.readers(one)} != {other}:
        return "the first is read by something else too"
    if first.kind not in STATISTICS or second.kind not in STATISTICS or not model.is_over_features(other):
        return f"a {first.kind} and a {second.kind} are not one norm"
    if (first.kind, second.kind) == ("rmsnorm", "layernorm"):
        return "the first divides by the mean square, the second by the variance"
    gain, bias = model.values.constant(first.gain, 1.0), model.values.constant(first.bias, 0.0)
    if not gain:
        return "the first's gain is not one number for all features, so the second divides by something else"
    if bias is None or (second.kind == "rmsnorm" and bias):
        return "the first's bias is not one that the second does not see"
    if (second.gain and not first.gain) or (second.bias and not first.bias):
        return "the first has no place for the second's gain and bias"
    factor = math.copysign(1.0, gain) / math.sqrt(1.0 + second.eps / gain**2)
    return Merge(first=first, second=second, factor=factor, eps=first.eps * second.eps / (gain**2 + second.eps))
