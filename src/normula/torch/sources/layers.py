"""Fewer layers in a config: of each sort of layer some stay, and all that is said of single layers goes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normula.torch.sources.fields import Fields, ints, overrides

LAYERS_OF_A_SORT = 2
FEW_LAYERS = 3
FEW_PERIODIC = 9


def fewer_layers(fields: Fields) -> None:
    """Cut the layers of one part of a config, in place."""
    counts = {name: n for name, n in ints(fields) if _counts_layers(name) and n > FEW_LAYERS}
    stages = [name for name, value in fields.items() if _counts_stages(name) and _whole(value)]
    for total in set(counts.values()):
        if not any(len(fields[name]) == total for name in stages):
            _cut(fields, [name for name, n in counts.items() if n == total], total)
    for name in stages:
        _cut_stages(fields, name)


def _counts_layers(name: str) -> bool:
    words = set(name.split("_"))
    other = {"conv", "feat", "lstm", "residual", "adapter", "id", "index", "idx", "start", "first", "per", "window"}
    other |= {"dense", "interval", "freq", "step", "period", "predict", "shared", "hash", "kv", "offset", "postnet"}
    return bool(words & {"layers", "layer", "depth", "blocks"}) and not words & other


def _counts_stages(name: str) -> bool:
    words = set(name.split("_"))
    return bool(
        words & {"depths", "depth", "repeats"}
        or (words & {"num", "n", "numb"} and words & {"blocks", "layers"})
        or words >= {"blocks", "per", "stage"}
    )


def _whole(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(type(n) is int and n > 0 for n in value)


def _points_at_layers(name: str, value: Any, total: int) -> bool:
    """Whether a list names some of the layers by their numbers."""
    words = set(name.split("_"))
    named = words & {
        "index",
        "indexes",
        "indices",
        "idx",
        "idxs",
        "ids",
        "id",
        "layers",
        "layer",
        "blocks",
        "block",
        "hook",
    }
    return bool(
        named
        and isinstance(value, (list, tuple))
        and value
        and all(type(n) is int and 0 <= n <= total for n in value)
        and len(set(value)) == len(value)
        and not _counts_stages(name)
        and name.strip("_") not in ("out_indices", "eos_token_id")
        and "token" not in words
    )


def _sorts(fields: Fields, total: int) -> list[tuple[Any, ...]]:
    """For each layer, everything that the config says about this layer alone."""
    sorts: list[tuple[Any, ...]] = [() for _ in range(total)]

    def column(values: Sequence[Any]) -> None:
        for layer, value in enumerate(values):
            sorts[layer] = (*sorts[layer], repr(value))

    if own := overrides(fields):
        column([sorted(own.get(layer, {}).items()) for layer in range(total)])
    for name, value in fields.items():
        if _points_at_layers(name, value, total):
            column([layer in value for layer in range(total)])
        elif isinstance(value, (list, tuple)) and len(value) == total and not hasattr(value, "model_type"):
            column(value)
        elif name.strip("_") == "out_indices" and isinstance(value, (list, tuple)):
            column([layer + 1 in value for layer in range(total)])
        elif type(value) is int and 0 < value < total and (side := _boundary(name)):
            edge = value if side == "first" else total - value
            column([layer < edge for layer in range(total)])
    return sorts


def _boundary(name: str) -> str:
    """Whether a number says how many of the first, or of the last, layers are of another sort."""
    words = set(name.split("_"))
    if words & {"first", "start", "dense", "hash", "window", "insert"} and words & {"layers", "layer", "dense", "k"}:
        return "first"
    return "last" if words >= {"shared", "layers"} else ""


def _periods(fields: Mapping[str, Any], total: int) -> list[int]:
    words = {"interval", "period", "pattern", "freq", "frequency", "step", "every"}
    return [n for name, n in ints(fields) if words & set(name.split("_")) and 2 <= n < total]


def _kept(fields: Fields, total: int, sorts: Sequence[tuple[Any, ...]]) -> list[int]:
    """Which layers stay: the first few of each sort; every one up to a period, where sorts follow a period."""
    wanted = set[int]()
    seen = dict[tuple[Any, ...], int]()
    for layer, sort in enumerate(sorts):
        seen[sort] = seen.get(sort, 0) + 1
        if seen[sort] <= LAYERS_OF_A_SORT:
            wanted.add(layer)
    for layer in range(total):
        if len(wanted) < FEW_LAYERS:
            wanted.add(layer)
    if periods := _periods(fields, total):
        once = max([FEW_LAYERS, max(periods) + 1, *(sorts.index(sort) + 1 for sort in sorts)])
        twice = max([once, *(layer + 1 for layer in wanted)])
        return list(range(min(twice if twice <= FEW_PERIODIC else once, total)))
    return sorted(wanted)


def _cut(fields: Fields, counts: Sequence[str], total: int) -> None:
    kept = _kept(fields, total, _sorts(fields, total))
    _keep(fields, total, kept)
    for name in counts:
        fields[name] = len(kept)


def _cut_stages(fields: Fields, name: str) -> None:
    depths = fields[name]
    stage_of = [stage for stage, depth in enumerate(depths) for _ in range(depth)]
    total = len(stage_of)
    sorts = [(stage, *sort) for stage, sort in zip(stage_of, _index_sorts(fields, total), strict=True)]
    seen = dict[tuple[Any, ...], int]()
    kept = list[int]()
    for layer, sort in enumerate(sorts):
        seen[sort] = seen.get(sort, 0) + 1
        if seen[sort] <= LAYERS_OF_A_SORT:
            kept.append(layer)
    for other, value in list(fields.items()):
        if _points_at_layers(other, value, total) and max(value) >= len(depths):
            fields[other] = type(value)(kept.index(layer) for layer in value if layer in kept)
    fields[name] = type(depths)(sum(stage_of[layer] == stage for layer in kept) for stage in range(len(depths)))


def _index_sorts(fields: Fields, total: int) -> list[tuple[Any, ...]]:
    lists = [value for name, value in fields.items() if _points_at_layers(name, value, total)]
    return [tuple(layer in value for value in lists) for layer in range(total)]


def _keep(fields: Fields, total: int, kept: Sequence[int]) -> None:
    """Everything that is said of single layers, for the kept ones only."""
    if own := overrides(fields):
        stay = {place: own[layer] for place, layer in enumerate(kept) if layer in own}
        own.clear()
        own.update(stay)
    is_backbone = isinstance(names := fields.get("stage_names", fields.get("_stage_names")), list) and (
        len(names) == total + 1
    )
    for name, value in list(fields.items()):
        bare = name.strip("_")
        if bare == "stage_names" and isinstance(value, list) and len(value) == total + 1:
            fields[name] = value[: len(kept) + 1]
        elif bare == "out_indices" and value and (is_backbone or max(value) == total):
            fields[name] = type(value)(1 + kept.index(n - 1) if n > 0 else n for n in value if n <= 0 or n - 1 in kept)
        elif bare == "out_features" and value and (is_backbone or f"stage{total}" in value):
            numbers = [int(text.removeprefix("stage")) for text in value if text.startswith("stage")]
            fields[name] = [f"stage{1 + kept.index(n - 1)}" for n in numbers if n - 1 in kept]
        elif _points_at_layers(name, value, total):
            fields[name] = type(value)(
                kept.index(n) if n < total else len(kept) for n in value if n in kept or n == total
            )
        elif isinstance(value, (list, tuple)) and len(value) == total:
            fields[name] = type(value)(value[layer] for layer in kept)
        elif type(value) is int and 0 < value < total and (side := _boundary(name)):
            edge = value if side == "first" else total - value
            first = sum(layer < edge for layer in kept)
            fields[name] = first if side == "first" else len(kept) - first
