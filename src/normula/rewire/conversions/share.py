"""Share a norm in parallel blocks, or give each of its readers one of its own.

    x + attn(norm1(x)) + mlp(norm2(x))  <->  n = norm(x); x + attn(n) + mlp(n)

Shared norms stay equal while they are trained, those with parameters of their own do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from normula.formula import Formula
from normula.read.expression import Normed, Stream, walk
from normula.read.found import ReadChain, ReadLayer
from normula.record.conversion import Affine, Conversion, Own, Share
from normula.rewire.conversions.model import Model
from normula.rewire.errors import RewireError

NAMED = re.compile(r"^(\w+) = norm\(x\); (.*)$")


def share(model: Model) -> Conversion:
    """Let norms of the same value in one layer be one, where their values are equal.

    Raises:
        RewireError: there are none, or some differ.
    """
    pairs = [(model.affine(one), model.affine(other)) for one, other in _pairs(model)]
    pairs = [(one, other) for one, other in pairs if one.path != other.path]
    if not pairs:
        raise RewireError(
            "Norms are shared where two in one layer read the same value, as in parallel blocks; none do."
        )
    for one, other in pairs:
        _check_equal(model, one, other)
    return Conversion(
        name="share",
        edits=tuple(Share(path=other.path, source=one.path) for one, other in pairs),
        done=tuple(f"{one.path}, {other.path}: 2 sites, 2 norms -> 1 norm, tied" for one, other in pairs),
        fixed=tuple(name for pair in pairs for one in pair for name in one.parameters),
        added=-sum(model.values.size(name) for _, other in pairs for name in other.parameters),
    )


def unshare(model: Model) -> Conversion:
    """Give each sublayer that reads a shared norm one of its own, with the same values.

    Raises:
        RewireError: no norm is shared between sublayers of a layer.
    """
    twice = [(model.affine(one), model.affine(other)) for one, other in _pairs(model)]
    twice = [(one, other) for one, other in twice if one.parameters and one.parameters == other.parameters]
    if twice:
        return _finished(model, [one for one, _ in twice], tuple(Own(path=one.path) for one, _ in twice))
    layers = [(one, layer) for one in model.found for layer in one.layers]
    shared = [(layer, found) for _, layer in layers if (found := _shared(model, layer)) is not None]
    texts = {layer.text for _, layer in layers}
    if not shared:
        raise RewireError("A norm is unshared where two sublayers of one layer read it; none is here.")
    if len(shared) < len(layers) or len(texts) > 1:
        raise RewireError("Norms are unshared in models whose layers all have the same formula; here they differ.")
    one = model.found[0]
    around = ([model.affine(node) for node in one.embed], [model.affine(node) for node in one.final])
    uses = len(Formula(texts.pop()).sublayers)
    order = (*around[0], *(norm for _, norm in shared for _ in range(uses)), *around[1])
    return _finished(model, [norm for _, norm in shared], (), uses, _unshared(one), order)


def _finished(
    model: Model,
    norms: list[Affine],
    edits: tuple[Own, ...],
    uses: int = 2,
    to: dict[str, object] | None = None,
    order: tuple[Affine, ...] = (),
) -> Conversion:
    sizes = [(uses - 1) * sum(model.values.size(name) for name in norm.parameters) for norm in norms]
    return Conversion(
        name="unshare",
        edits=edits,
        to=to,
        order=order,
        done=tuple(
            f"{norm.path}: {uses} sites, 1 norm -> {uses} norms (copied); "
            f"exact in inference, adds {size} parameters, unties"
            for norm, size in zip(norms, sizes, strict=True)
        ),
        added=sum(sizes),
    )


def _pairs(model: Model) -> Iterator[tuple[int, int]]:
    """Two norms in one layer that read the same value."""
    for one in model.found:
        for layer in one.layers:
            norms = [
                part.norm
                for event in layer.layer.events
                for part in walk(event.value)
                if isinstance(part, Normed) and isinstance(part.value, Stream)
            ]
            for first, second in combinations(sorted(set(norms)), 2):
                if model.source(first) == model.source(second):
                    yield first, second


def _check_equal(model: Model, one: Affine, other: Affine) -> None:
    same = (one.kind, one.eps, len(one.parameters)) == (other.kind, other.eps, len(other.parameters))
    names = zip(one.parameters, other.parameters, strict=False)
    if not same or not all(model.values.are_equal(mine, theirs) for mine, theirs in names):
        raise RewireError(
            f"Norms are shared where they are equal, and {one.path} and {other.path} are not: "
            "the model would compute something else. Leave them as they are."
        )


def _shared(model: Model, layer: ReadLayer) -> Affine | None:
    """The norm of a layer that several sublayers read, and nothing else, where the layer has no other."""
    found = NAMED.match(layer.text)
    if found is None:
        return None
    name, rest = found.groups()
    uses = len(re.findall(rf"\b{name}\b", rest))
    norms = [part.norm for event in layer.layer.events for part in walk(event.value) if isinstance(part, Normed)]
    is_only = len(set(norms)) == 1 and uses == len(re.findall(rf"\w\({name}\b", rest))
    return model.affine(norms[0]) if uses > 1 and is_only else None


def _unshared(one: ReadChain) -> dict[str, object]:
    """The placement with a norm for each sublayer."""
    found = NAMED.match(one.layers[0].text)
    assert found is not None
    name, rest = found.groups()
    formula = Formula(re.sub(rf"\b{name}\b", "norm(x)", rest))
    return {
        "name": str(formula),
        "formula": str(formula),
        "embed": "norm(x)" if one.embed else "x",
        "final": "norm(x)" if one.final else "x",
    }
