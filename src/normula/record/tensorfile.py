"""One safetensors file: its header, checked before anything in it is believed, and its writer.

The format is eight bytes with the header's length, the header as JSON, and the numbers; see
https://github.com/huggingface/safetensors. Nothing here runs code from a file, and nothing is read past its end.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

LONGEST_HEADER: Final = 100_000_000
"""In bytes; the same as the reference implementation allows."""

DEEPEST: Final = 4
"""How far JSON in a header nests: the header, a tensor, its shape; one to spare."""

METADATA: Final = "__metadata__"

_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)
"""A text, or a bracket outside of texts."""

BITS: Final = {
    **{"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32},
    **{"U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8},
    **{"F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}
"""The dtypes of the format, with their bits."""


class WeightsError(ValueError):
    """A file that is not what it should be, or of another formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor in a file: its dtype in the format's words, its shape, and where its bytes begin and end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file says of itself."""

    metadata: dict[str, str]
    entries: dict[str, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor to be written: `read` gives its bytes when they are written, so that no two are in memory at once."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Any]


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of a file, with every promise of the format checked.

    Raises:
        FileNotFoundError: there is no such file.
        WeightsError: the file is cut, or says what cannot be.
    """
    where = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {where}")
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else 0
        if size < 8 or length > size - 8:
            said = f"its header should have {length:,} bytes and {max(size - 8, 0):,} follow"
            raise WeightsError(f"{where} is no safetensors file, or is cut short: {said}. Fetch or save it again")
        if length > LONGEST_HEADER:
            raise WeightsError(f"{where} has a header of {length:,} bytes; {LONGEST_HEADER:,} are allowed")
        raw = file.read(length)
    return parse_header(raw, size - 8 - length, where)


def parse_header(raw: bytes, payload: int, where: str) -> Header:
    """A header from its bytes, of a file with so many bytes after it.

    Raises:
        WeightsError: it says what cannot be.
    """
    found = read_json(raw, where, DEEPEST)
    metadata = found.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise WeightsError(f"{where}: the metadata of a safetensors file must be texts by name")
    begin = 8 + len(raw)
    entries = {name: _entry(name, said, begin, payload, where) for name, said in found.items()}
    _refuse_gaps(entries, begin, payload, where)
    return Header(metadata=metadata, entries=entries)


def read_json(raw: bytes, where: str, deepest: int) -> dict[str, Any]:
    """A JSON object in which no name comes twice, nested no deeper than is said.

    Raises:
        WeightsError: it is none.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise WeightsError(f"{where} names {twice[:80]!r} twice")
        return names

    def refuse(word: str) -> Any:
        raise WeightsError(f"{where} holds {word}, which is no JSON")

    try:
        text = raw.decode("utf-8")
        _refuse_depth(text, where, deepest)
        found = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except WeightsError:
        raise
    except (ValueError, RecursionError) as error:
        said = str(error).splitlines()[0][:120]
        raise WeightsError(
            f"{where} is no safetensors file, or is cut short: its JSON does not read ({said}). Fetch or save it again"
        ) from None
    if not isinstance(found, dict):
        raise WeightsError(f"{where} should hold a JSON object, not a {type(found).__name__}")
    return found


def write_file(file: BinaryIO, tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> None:
    """Write a file, wide dtypes first, so that every tensor is aligned; each is read when its turn comes."""
    order = sorted(tensors, key=lambda name: (-BITS[tensors[name].dtype], name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        one = tensors[name]
        start, end = end, end + size_of(one.dtype, one.shape)
        header[name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    if len(raw) > LONGEST_HEADER:
        raise WeightsError(f"the header would have {len(raw):,} bytes; {LONGEST_HEADER:,} are allowed")
    file.write(len(raw).to_bytes(8, "little"))
    file.write(raw)
    for name in order:
        file.write(tensors[name].read())


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor."""
    bits = BITS[dtype]
    for length in shape:
        bits *= length
    return bits // 8


def _refuse_depth(text: str, where: str, deepest: int) -> None:
    """Count brackets outside of texts, before a parser recurses into them."""
    depth = 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] in ("[", "{"):
            depth += 1
            if depth > deepest:
                raise WeightsError(f"{where} nests its JSON deeper than {deepest}")
        elif mark[0] in ("]", "}"):
            depth -= 1


def _entry(name: str, said: Any, begin: int, payload: int, where: str) -> Entry:
    def refuse(why: str) -> WeightsError:
        return WeightsError(f"{where}: the tensor {name[:80]!r} {why}")

    if not isinstance(said, dict) or set(said) != {"dtype", "shape", "data_offsets"}:
        raise refuse("must have a dtype, a shape and data_offsets, and nothing else")
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise refuse(f"has the dtype {str(dtype)[:40]!r}, which the format does not have")
    if not _are_lengths(shape):
        raise refuse("has a shape that is no list of whole numbers from 0")
    if not _are_lengths(offsets) or len(offsets) != 2:
        raise refuse("has offsets that are no two whole numbers from 0")
    start, end = offsets
    if not start <= end <= payload:
        raise refuse(f"ends at byte {end:,} of {payload:,}: the file is cut short, or its offsets are wrong")
    bits = BITS[dtype]
    for length in shape:
        bits *= length
    if bits != 8 * (end - start):
        raise refuse(f"of shape {shape} and dtype {dtype} does not take the {end - start:,} bytes that it is given")
    return Entry(dtype=dtype, shape=tuple(shape), start=begin + start, end=begin + end)


def _are_lengths(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**63 for one in value)


def _refuse_gaps(entries: Mapping[str, Entry], begin: int, payload: int, where: str) -> None:
    """Tensors lie one after another; what overlaps is read twice, and a gap hides what nobody reads."""
    at = begin
    for name, one in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if one.start != at:
            what = "overlaps another" if one.start < at else "leaves a gap before it"
            raise WeightsError(f"{where}: the tensor {name[:80]!r} {what}; its offsets are wrong")
        at = one.end
    if at != begin + payload:
        raise WeightsError(f"{where} has {begin + payload - at:,} bytes after its last tensor, which belong to none")
