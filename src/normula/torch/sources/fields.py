"""The fields of a transformers config, and what sort of number stands in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

Fields = MutableMapping[str, Any]


def parts(config: Any) -> Iterator[Fields]:
    """The fields of a config, then those of the configs inside it."""
    return (fields for _, fields in named_parts(config))


def named_parts(config: Any, path: str = "") -> Iterator[tuple[str, Fields]]:
    """The same, each with what leads to it: nothing, then such as `text_config.`."""
    fields: Fields = config if isinstance(config, dict) else vars(config)
    yield path, fields
    for name, value in list(fields.items()):
        if hasattr(value, "model_type") or (isinstance(value, dict) and name.endswith("_config")):
            yield from named_parts(value, f"{path}{name}.")
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                if hasattr(item, "model_type"):
                    yield from named_parts(item, f"{path}{name}.{place}.")


def overrides(fields: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """For some layers, fields of their own."""
    spec = fields.get("_heterogeneity_spec")
    found: dict[int, dict[str, Any]] = getattr(spec, "per_layer_overrides", None) or {}
    return found


def main_width(fields: Mapping[str, Any]) -> int:
    """The width of the residual stream of one part, 0 where it is not one number."""
    for name in ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "width"):
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def kind(name: str) -> str:
    """What sort of number stands in a field, told by the words of its name; an empty text where none of ours."""
    words = set(re.split(r"[_.]", name.lower()))
    if "vocab" in words and "type" not in words:
        return "vocabulary"
    if (words & {"experts", "expert"} and words & {"per", "top", "topk", "selected"}) or words >= {"moe", "k"}:
        return "choices"
    if "experts" in words and not words & {"shared", "size", "dim", "hidden", "intermediate", "implementation"}:
        return "experts"
    sizes = {"dim", "dims", "size", "sizes", "width", "channels", "rank"}
    if "heads" in words or ("head" in words and words & {"n", "num"} and not words & sizes):
        return "" if words & sizes else "heads"
    if words >= {"image", "size"} or words >= {"feat", "sizes"} or words >= {"feature", "sizes"}:
        return "image"
    if words >= {"image", "embedding", "size"}:
        return "image"
    if words & {"head", "kv", "rotary", "rope", "nope", "key", "value"} and words & (sizes | {"d"}) - {"rank"}:
        if "hidden" in words:
            return "width"
        return "" if words & {"out", "vocab", "feat", "k"} else "head width"
    if words >= {"pos", "feats"}:
        return "width"
    if words & {
        "kernel",
        "patch",
        "image",
        "window",
        "position",
        "positions",
        "mel",
        "state",
        "per",
        "mask",
        "num",
    } and (not words & {"filters", "units"}):
        return ""
    if words & {"dim", "dims", "width", "channels", "channel", "filters", "units", "rank", "embd", "inner", "d"}:
        return "" if words & {"max", "min", "time"} - {"time"} else "width"
    if words & {"size", "sizes"} and words & _SIZED:
        return "width"
    return ""


_SIZED = {
    *("hidden", "intermediate", "embedding", "embed", "emb", "ffn", "ff", "inner", "proj", "projector", "projection"),
    *("output", "mlp", "model", "bottleneck", "coordinate", "shape", "expert", "experts"),
}


def ints(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The fields that hold one whole number."""
    for name, value in fields.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def flat(value: Any) -> Iterator[int]:
    """The whole numbers in a value: itself, or those of its lists."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
