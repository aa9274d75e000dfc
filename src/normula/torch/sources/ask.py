"""One input of a model: its shape, and how its values are drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from normula.torch.sources.errors import SourceError

DTYPES = {
    "int": torch.long,
    "long": torch.long,
    "int32": torch.int32,
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "double": torch.float64,
    "bool": torch.bool,
}
"""The types that can stand behind an input's shape."""

FIRST_ID, LAST_ID = 3, 100
"""Random ids: below 3 stand padding and ends in most vocabularies, and any vocabulary has 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One input.

    Attributes:
        shape: of the tensor.
        fill: `ids`, `normal`, `ones`, `zeros`, `boxes`, `grid` for places in a square, or `rows` for the given values.
        dtype: None where the fill decides.
        last_id: ids are drawn below it.
        rows: the values of `rows`, along the last axis, the same for every row.
        planted: for ids, special tokens that stand first in every row: an id, and how often.
    """

    shape: tuple[int, ...]
    fill: str = "normal"
    dtype: torch.dtype | None = None
    last_id: int = LAST_ID
    rows: tuple[int, ...] = ()
    planted: tuple[tuple[int, int], ...] = ()

    def tensor(self, seed: int, device: str = "cpu") -> Tensor:
        """The tensor, drawn from a generator of its own."""
        if device == "meta" and math.prod(self.shape) >= 1 << 26:
            return self._empty()
        random = torch.Generator().manual_seed(seed)
        match self.fill:
            case "ids":
                made = torch.randint(min(FIRST_ID, self.last_id - 1), self.last_id, self.shape, generator=random)
                start = 1
                for token, count in self.planted:
                    made[:, start : start + count] = token
                    start += count
            case "ones":
                made = torch.ones(self.shape, dtype=torch.long)
            case "zeros":
                made = torch.zeros(self.shape, dtype=torch.long)
            case "rows":
                made = torch.tensor(self.rows).expand(self.shape).contiguous()
            case "grid":
                places, side = torch.arange(self.shape[-2]), math.isqrt(self.shape[-2])
                made = torch.stack([places // side, places % side], dim=-1).expand(self.shape).contiguous()
            case "boxes":
                made = torch.rand(self.shape, generator=random).sort(dim=-1).values
                made = made * 900 if self.dtype == torch.long else made
            case _:
                made = torch.randn(self.shape, generator=random)
        return made.to(device=device, dtype=self.dtype or made.dtype)

    def _empty(self) -> Tensor:
        dtype = torch.float32 if self.fill in ("normal", "boxes") else torch.long
        return torch.empty(self.shape, dtype=self.dtype or dtype, device="meta")

    def resized(self, axis: int, size: int) -> Ask:
        shape = list(self.shape)
        shape[axis] = size
        return replace(self, shape=tuple(shape))


def parse_input(text: str) -> tuple[str, Ask]:
    """An input as a user writes it: `input_ids=2x8`, `pixel_values=1x3x32x32`, `state=2x5:float`.

        >>> name, ask = parse_input("input_ids=2x8")
        >>> name, ask.shape, ask.fill
        ('input_ids', (2, 8), 'ids')

    Values follow the name unless a type is given: ids are random whole numbers, masks ones, all else normal.

    Raises:
        SourceError: the text is no input; the message says what one looks like.
    """
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+(?:[x,]\d+)*)?\s*(?::\s*(\w+))?\s*", text)
    if match is None or (match[2] is None and match[3] is None):
        raise SourceError(f"an input is written name=shape, such as input_ids=2x8 or mask=2x8:bool, not {text!r}")
    name, sizes, dtype = match[1], match[2], match[3]
    if dtype is not None and dtype not in DTYPES:
        raise SourceError(f"the type of an input is one of {', '.join(DTYPES)}, not {dtype!r} in {text!r}")
    shape = tuple(int(size) for size in re.split("[x,]", sizes)) if sizes else ()
    if 0 in shape:
        raise SourceError(f"every size of an input is at least 1, not 0 in {text!r}")
    return name, ask_for(name, shape, DTYPES[dtype] if dtype else None)


def as_asks(inputs: Mapping[str, Any] | None) -> dict[str, Ask]:
    """Inputs as a caller gives them, by name: shapes, or what `parse_input` made."""
    asks = dict[str, Ask]()
    for name, given in (inputs or {}).items():
        if isinstance(given, Ask):
            asks[name] = given
        elif isinstance(given, (tuple, list)) and all(type(size) is int and size > 0 for size in given):
            asks[name] = ask_for(name, tuple(given))
        else:
            raise SourceError(f"the input {name!r} is given by its shape, such as (2, 8), not {given!r}")
    return asks


def ask_for(name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Ask:
    """An input of a name and shape, filled as its name or its type says."""
    whole = dtype in (torch.long, torch.int32)
    if "mask" in name or dtype == torch.bool:
        return Ask(shape=shape, fill="ones", dtype=dtype)
    if re.search(r"box(es)?$", name):
        return Ask(shape=shape, fill="boxes", dtype=dtype)
    if re.search(r"(position|type|task|lang|segment|speaker)s?_ids$|_type_ids$", name):
        return Ask(shape=shape, fill="zeros", dtype=dtype)
    if name.endswith(("ids", "tokens")) or whole:
        return Ask(shape=shape, fill="ids", dtype=dtype)
    return Ask(shape=shape, fill="normal", dtype=dtype)
