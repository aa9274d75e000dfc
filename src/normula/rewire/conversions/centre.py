"""LayerNorm to RMSNorm, by centring what writes to the stream.

    layernorm(x) = rmsnorm(x) where the mean of x over its features is 0

Jiang, Gu, Zhu, Pan, Pre-RMSNorm and Pre-CRMSNorm Transformers, 2023 (arXiv 2305.14858). Epsilon stays: the mean square
of a centred token is its variance.
"""

from __future__ import annotations

from normula.record.conversion import AsRMSNorm, Centre, Conversion, Edit, Untie
from normula.rewire.conversions.model import OUTPUT, Model
from normula.rewire.conversions.writers import Writers
from normula.rewire.errors import RewireError


def centre(model: Model) -> Conversion:
    """Centre all writers, and make RMSNorms of the LayerNorms that read the stream.

    Raises:
        RewireError: something that is not centred goes into the stream, or something else than LayerNorms reads it.
    """
    writers = Writers(model, _stream(model))
    if writers.problem:
        raise RewireError(
            f"The stream is centred where products with matrices, biases and tables are all that goes into it: "
            f"here {writers.problem}, whose output has a mean of its own for each token."
        )
    norms = _norms(model, writers.nodes)
    untied = _untied(model, writers)
    names = [(model.graph[node].attrs["names"][0], axis) for node, axis in sorted(writers.axes.items())]
    edits: tuple[Edit, ...] = (
        *untied,
        *(Centre(name=name, axis=axis) for name, axis in names),
        *(AsRMSNorm(norm=model.affine(node)) for node in norms),
    )
    return Conversion(
        name="centre",
        edits=edits,
        done=(
            *(f"{name}: minus its mean over axis {axis}" for name, axis in names),
            *(
                f"{model.graph.path(node)}: LayerNorm -> RMSNorm, eps {model.graph[node].attrs['eps']:g}"
                for node in norms
            ),
        ),
        added=sum(model.values.size(one.name) for one in untied),
    )


def _stream(model: Model) -> set[int]:
    """All values that the streams have: before their first layer, and after each sum."""
    found = {event.node for event in model.events} | {event.base for event in model.events}
    norms = {node for node in model.norms() if model.graph[node].attrs["name"] == "layernorm"}
    if not norms:
        raise RewireError("This model's stream has no LayerNorm; there is none to make an RMSNorm of.")
    return {one for one in found if one not in norms} | {event.node for event in model.events if event.node in norms}


def _norms(model: Model, stream: set[int]) -> list[int]:
    """The LayerNorms that read the stream; nothing else may."""
    found: set[int] = set()
    for node in stream:
        for user, view in model.readers(node):
            if user in stream:
                continue
            where = "the model returns it" if user == OUTPUT else f"{model.where(user)} reads it"
            if user == OUTPUT or not _is_layernorm(model, user, view):
                raise RewireError(
                    "The stream is centred where only LayerNorms read it, which do not see its mean: "
                    f"here {where} as it is."
                )
            found.add(user)
    paths = {model.graph.path(node) for node in found}
    beside = [
        node
        for node, one in enumerate(model.graph.nodes)
        if one.kind == "norm" and model.graph.alive[node] and model.graph.path(node) in paths and node not in found
    ]
    if beside:
        raise RewireError(
            f"The norm {model.graph.path(beside[0])} reads the stream and something else, which is not centred."
        )
    return sorted(found)


def _is_layernorm(model: Model, node: int, view: int) -> bool:
    one = model.graph[node]
    is_input = one.kind == "norm" and one.inputs[0] == view
    return is_input and one.attrs["name"] == "layernorm" and model.is_over_features(node)


def _untied(model: Model, writers: Writers) -> list[Untie]:
    """What else uses a table gets the values that it had, if that is wanted."""
    found = []
    for parameter in writers.axes:
        for user in model.others(parameter, writers.nodes):
            name, own = model.graph[parameter].attrs["names"][0], model.name(parameter, user)
            if not model.untie or own == name:
                raise RewireError(
                    f"{name} is tied: {model.where(user)} uses it too, and would see that it is centred. "
                    "Give that a matrix of its own: untie=True, --untie."
                )
            found.append(Untie(name=own))
    return found
