"""A tiny twin of a transformers config: the same structure, small.

Numbers are divided by their kind, and a kind is told by the words of a field's name. Heads are divided by a, the width
of a head by b and every other width by a * b, in all parts of a config alike, so that what was equal or divisible stays
so: hidden = heads * head width, an encoder's output = its decoder's input. Of the layers, some of each sort stay.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from normula.torch.sources.fields import Fields, flat, ints, kind, main_width, overrides, parts
from normula.torch.sources.layers import fewer_layers

VOCABULARY = 256
"""Ids of a twin: enough for the random ids that are fed, and for as many special ones as any config has."""
EXPERTS = 8
LEAST_WIDTH = 64  # a multiple of 32: several models normalise in 32 groups whatever their config says
LARGE = 256
LEAST_HEAD_WIDTH = 8
ALIGNED = 4  # some kernels want rows of whole 16 bytes
LEAST_IMAGE = 448
"""Sides below this are left as they are: windows and grids of positions hang on them."""
SMALL = 16
"""Widths below this are no widths of the network but of its input, such as 3 colours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a twin is divided by, and which kinds of fields shrink at all."""

    heads: int = 1
    head_width: int = 1
    layers: bool = True
    vocabulary: bool = True
    experts: bool = True
    images: int = 1

    @property
    def width(self) -> int:
        return self.heads * self.head_width


def scales(config: Any) -> Iterator[Scale]:
    """From the smallest twin to the config as it is: where one does not run, the next may."""
    widths, head_widths, heads = set[int](), set[int](), set[int]()
    for fields in parts(config):
        counts = _main_heads(fields)
        heads |= set(counts)
        hidden = main_width(fields)
        if hidden:
            widths.add(hidden)
            head_widths |= {hidden // count for count in counts if hidden % count == 0}
        head_widths |= {n for name, n in ints(fields) if kind(name) == "head width" and n >= LEAST_HEAD_WIDTH}
    widths = {width for width in widths if width >= LARGE} or widths  # codecs inside a model are narrow as they are
    room = 1 << max((min(widths, default=0) // LEAST_WIDTH).bit_length() - 1, 0)
    while room > 1 and any(width % (room * ALIGNED) for width in widths):
        room //= 2
    most_heads = of_heads = _halvings(heads, least=2, even=False)
    of_width = _halvings(head_widths, least=LEAST_HEAD_WIDTH, even=True) if heads or head_widths else room
    while most_heads > max(room, 1):
        most_heads //= 2
    while of_heads * of_width > max(room, 1):
        if of_heads >= of_width:
            of_heads //= 2
        else:
            of_width //= 2
    images = _images(config)
    yield Scale(heads=of_heads, head_width=of_width, images=images)
    yield Scale(heads=of_heads, head_width=of_width)
    if of_heads * of_width > 2:
        yield Scale(heads=max(1, of_heads // 2), head_width=max(1, of_width // 2), images=images)
    yield Scale(heads=most_heads, images=images)
    yield Scale(heads=of_heads, head_width=of_width, layers=False, experts=False)
    yield Scale(head_width=min(of_width, 2), layers=False, vocabulary=False, experts=False)
    yield Scale()
    yield Scale(vocabulary=False, experts=False)
    yield Scale(layers=False, vocabulary=False, experts=False)


def _images(config: Any) -> int:
    """By which power of two the sides of large images are divided: as far as whole patches remain."""
    factor = 8
    for fields in parts(config):
        for name, value in fields.items():
            if kind(name) != "image" or name.startswith("image_embedding"):
                continue
            patch = max(flat(fields.get("patch_size")), default=1)
            for side in flat(value):
                while factor > 1 and side >= LEAST_IMAGE and (side % (factor * patch) or side // factor < 128):
                    factor //= 2
    sides = [n for fields in parts(config) for n in flat(fields.get("image_size"))]
    return factor if max(sides, default=0) >= LEAST_IMAGE else 1


def shrink(config: Any, scale: Scale) -> Any:
    """A copy of a config, divided by a scale.

    Args:
        config: of transformers; it is not changed.
        scale: one of `scales(config)`.
    """
    small = copy.deepcopy(config)
    ids = _new_ids(small) if scale.vocabulary else {}
    for fields in parts(small):
        if scale.layers:
            fewer_layers(fields)
        if scale.experts:
            _fewer_experts(fields)
        for layer in overrides(fields).values():
            for name, value in list(layer.items()):
                layer[name] = _divided(name, value, scale, ids)
        for name, value in list(fields.items()):
            if name in ("id2label", "label2id"):
                continue
            fields[name] = _divided(name, value, scale, ids)
        _fit(fields)
    return small


def _main_heads(fields: Mapping[str, Any]) -> list[int]:
    """Numbers of heads of queries; those of keys and values may be fewer."""
    counts = list[int]()
    for name, value in fields.items():
        if kind(name) == "heads" and not re.search("key|value|kv", name):
            counts += [n for n in flat(value) if n > 1]
    return counts


def _halvings(numbers: set[int], *, least: int, even: bool) -> int:
    """The largest power of two by which all of them can be divided without falling below the least."""
    factor = 1
    while numbers and all(n % (factor * (4 if even else 2)) == 0 and n // (factor * 2) >= least for n in numbers):
        factor *= 2
    return factor


def _divided(name: str, value: Any, scale: Scale, ids: Mapping[int, int]) -> Any:
    if hasattr(value, "model_type") or isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, dict):
        return _rope(value, scale) if "rope" in name else value
    if isinstance(value, (list, tuple)):
        return type(value)(_divided(name, item, scale, ids) for item in value)
    if not isinstance(value, int):
        return value
    if re.search(r"(_id|_ids|_index|_idx)$", name):
        return ids.get(value, value)
    match kind(name):
        case "heads":
            return value // gcd(value, scale.heads)
        case "head width" if value >= LEAST_HEAD_WIDTH:
            return max(value // scale.head_width, 2)
        case "width" if value >= SMALL:
            if scale.width > 1 and re.search("intermediate|ffn|mlp", name):
                return -(-value // (scale.width * ALIGNED)) * ALIGNED
            return max(value // scale.width, 4)
        case "image" if scale.images > 1 and value % scale.images == 0:
            return value // scale.images
        case "vocabulary" if scale.vocabulary:
            return min(value, VOCABULARY)
    return value


def _rope(rope: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Rotary parameters whose lists have one entry for each pair of a head's features."""
    new = dict[str, Any]()
    for name, value in rope.items():
        if isinstance(value, dict):
            new[name] = _rope(value, scale)
        elif isinstance(value, list) and "section" in name:
            short = [n // scale.head_width for n in value]
            short[0] += sum(value) // scale.head_width - sum(short)
            new[name] = short
        elif isinstance(value, list) and len(value) >= LEAST_HEAD_WIDTH:
            new[name] = value[: max(len(value) // scale.head_width, 1)]
        else:
            new[name] = value
    return new


def _new_ids(config: Any) -> dict[int, int]:
    """For special tokens that the small vocabulary does not reach, other ids at its end."""
    found = set[int]()
    for fields in parts(config):
        for name, value in fields.items():
            if re.search(r"(_id|_ids|_index|_idx)$", name):
                found |= {n for n in flat(value) if n >= VOCABULARY}
    return {old: VOCABULARY - 1 - place for place, old in enumerate(sorted(found)) if place < VOCABULARY // 2}


def _fewer_experts(fields: Fields) -> None:
    """At least two in each group, since groups are ranked by their best two; two are chosen."""
    groups = max([n for name, n in ints(fields) if name in ("n_group", "num_expert_group")], default=1)
    most = max(EXPERTS, 2 * groups)
    for name, value in list(fields.items()):
        match kind(name):
            case "experts":
                fields[name] = _each(value, lambda n: min(n, most))
            case "choices":
                fields[name] = _each(value, lambda n: min(n, 2))


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_each(item, change) for item in value)
    return change(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _fit(fields: Fields) -> None:
    """Groups of channels must divide the channels, and heads the width, where no width of a head is said."""
    width = main_width(fields)
    if width and not any(kind(name) == "head width" for name in fields):
        for name, value in list(ints(fields)):
            if name in ("num_attention_heads", "num_heads", "n_head") and value > 1 and width % value:
                fields[name] = gcd(width, value)
    for name, value in list(ints(fields)):
        if "groups" in name.split("_") and value > 2 and width and width % value:
            fields[name] = gcd(width, value)
