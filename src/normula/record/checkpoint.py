"""A checkpoint on disk: one safetensors file, or a folder with shards and their index as transformers writes them.

Tensors are mapped into memory, not read: what nobody asks for costs nothing. A checkpoint is replaced as a whole: files
are written under names of their own, and one rename makes them the checkpoint.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from normula.record.tensorfile import (
    Entry,
    Header,
    Stored,
    WeightsError,
    read_header,
    read_json,
    size_of,
    write_file,
)

WHOLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
LONGEST_INDEX: Final = 100_000_000
"""In bytes, as of a header."""

KEY: Final = "normula"
"""Where a file's metadata say what is known about the weights."""

PICKLES: Final = frozenset((".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"))
"""Suffixes of files that may be pickles."""

OTHER_KINDS: Final = PICKLES | {".npz", ".h5", ".msgpack", ".json"}
"""Suffixes of files that other programs write; a folder of such a name would be taken for one."""

SIDE: Final = "normula.json"
"""Where a folder says it, if its files were written by another program."""


@dataclass(slots=True)
class Checkpoint:
    """What is in a checkpoint.

    Attributes:
        where: what the user named.
        entries: for each tensor, its file and its place there.
        about: what is known about the weights, if they say it: plain data from the metadata or from a file beside.
        metadata: of the first file.
    """

    where: str
    entries: dict[str, tuple[Path, Entry]]
    about: dict[str, Any] | None
    metadata: dict[str, str]
    _maps: dict[Path, memoryview] = field(default_factory=dict)

    def bytes_of(self, name: str) -> memoryview:
        """The bytes of a tensor, mapped; to write into them changes no file."""
        path, entry = self.entries[name]
        if entry.start == entry.end:
            return memoryview(bytearray())
        if path not in self._maps:
            with open(path, "rb") as file:
                self._maps[path] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        return self._maps[path][entry.start : entry.end]

    def size(self) -> int:
        """The bytes of all tensors."""
        return sum(entry.end - entry.start for _, entry in self.entries.values())


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """What a file or a folder holds; no tensor is read yet.

    Args:
        path: a file that ends in .safetensors; an index of shards; a folder with either.

    Raises:
        FileNotFoundError: there is nothing there.
        WeightsError: it is not what it should be.
    """
    path = Path(path)
    where = os.fspath(path)
    if path.is_dir():
        path = _main_file(path)
    if path.name.endswith(".index.json"):
        files, listed = _shards(path)
    elif path.suffix == ".safetensors" or not path.exists():
        files, listed = [path], None
    else:
        raise WeightsError(_other_kind(path))
    headers = {file: read_header(file) for file in files}
    entries = _joined(headers, listed, where)
    first = next(iter(headers.values()), Header(metadata={}, entries={}))
    return Checkpoint(where, entries, _about(path, headers), first.metadata)


def write_checkpoint(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Stored],
    about: Mapping[str, Any],
    *,
    shard_bytes: int | None = None,
    metadata: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a checkpoint; what was there is whole until the new one is, whatever happens in between.

    Args:
        path: a file that ends in .safetensors, or a folder.
        tensors: by name; each is asked for its bytes once.
        about: plain data that travel in the metadata of every file.
        shard_bytes: how large one file of a folder may be; None for one file.
        metadata: more texts for the metadata.

    Returns:
        The files that now are the checkpoint.
    """
    path = Path(path)
    refuse_as_target(path)
    said = {**(metadata or {}), KEY: json.dumps(about)}
    if path.suffix == ".safetensors":
        with replacing(path) as file:
            write_file(file, tensors, said)
        return [path]
    path.mkdir(parents=True, exist_ok=True)
    old = _files_of(path)
    parts = _parts(tensors, shard_bytes)
    if len(parts) == 1:
        with replacing(path / WHOLE) as file:
            write_file(file, tensors, said)
        new = [path / WHOLE]
    else:
        new = _write_shards(path, parts, said)
    for one in old - set(new):
        one.unlink(missing_ok=True)
    return new


def refuse_as_target(path: Path) -> None:
    """Refuse a path that nothing can be written to, or that says it is of another kind than what is written.

    Raises:
        ValueError: its suffix is that of another kind of file; it is a file and should be a folder.
        FileNotFoundError: there is no folder to write it into.
    """
    if path.suffix in OTHER_KINDS or (path.suffix != ".safetensors" and path.is_file()):
        raise ValueError(f"{path} must end in .safetensors, or be a folder. Name one of these")
    if path.suffix == ".safetensors" and not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into. Make it first")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name only when all of it is written."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a text file at once or not at all."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _other_kind(path: Path) -> str:
    """That a file is of a kind that is not read, and what to do."""
    if path.suffix not in PICKLES:
        return f"{path} is no .safetensors file, and others never are read. Name one, an index of shards, or a folder"
    return (
        f"{path} is no .safetensors file; pickles, which run code when they are read, never are. Where you trust it, "
        "read it with torch.load and weights_only=True, and write it with safetensors.torch.save_file"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _main_file(folder: Path) -> Path:
    """The file of a folder that is its checkpoint, as transformers chooses it."""
    for name in (WHOLE, INDEX):
        if (folder / name).is_file():
            return folder / name
    found = sorted({*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")})
    indexes = [one for one in found if one.name.endswith(".json")]
    if len(indexes or found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise WeightsError(
            f"{folder} must have {WHOLE} or {INDEX}; its files of weights are: {names}. Name one of them, or another "
            "folder; pickles, such as .bin and .pt, are never read"
        )
    return (indexes or found)[0]


def _shards(index: Path) -> tuple[list[Path], dict[str, Path]]:
    """The files that an index names, each inside its own folder, and the file of each tensor."""
    where = os.fspath(index)
    if not index.is_file():
        raise FileNotFoundError(f"there is no file {where}")
    if index.stat().st_size > LONGEST_INDEX:
        raise WeightsError(f"{where} has {index.stat().st_size:,} bytes; {LONGEST_INDEX:,} are allowed")
    written = read_json(index.read_bytes(), where, deepest=8).get("weight_map")
    if not isinstance(written, dict) or not all(isinstance(name, str) for name in written.values()):
        raise WeightsError(f"{where} must have a weight_map: the name of a file for each tensor")
    files = {name: _inside(index, name) for name in dict.fromkeys(written.values())}
    return list(files.values()), {tensor: files[name] for tensor, name in written.items()}


def _inside(index: Path, name: str) -> Path:
    """A shard's path; only a plain name of a file beside the index is one."""
    path = index.parent / name
    if Path(name).name != name or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
        raise WeightsError(f"{index} names the shard {name[:80]!r}; a shard is a .safetensors file beside its index")
    if path.is_symlink():
        folder, target = index.parent.resolve(), path.resolve()
        cache = folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else folder  # as the hub's cache
        if target.parent not in (folder, cache):
            raise WeightsError(f"{index} names the shard {name!r}, a link that leads out of its folder")
    if not path.is_file():
        raise WeightsError(f"{index} names the shard {name!r}, and there is no such file beside it")
    return path


def _joined(
    headers: Mapping[Path, Header], listed: Mapping[str, Path] | None, where: str
) -> dict[str, tuple[Path, Entry]]:
    entries: dict[str, tuple[Path, Entry]] = {}
    for file, header in headers.items():
        for name, entry in header.entries.items():
            if name in entries:
                raise WeightsError(f"{where}: {name!r} is in two shards, {entries[name][0].name} and {file.name}")
            if listed is not None and listed.get(name) != file:
                raise WeightsError(f"{where}: {name!r} is in {file.name}, where the index does not have it")
            entries[name] = (file, entry)
    if lost := [name for name in listed or () if name not in entries]:
        raise WeightsError(f"{where}: the index names {lost[0]!r} in {(listed or {})[lost[0]].name}, which lacks it")
    return entries


def _about(path: Path, headers: Mapping[Path, Header]) -> dict[str, Any] | None:
    """What the weights say of themselves; every shard must say the same."""
    said = {header.metadata.get(KEY) for header in headers.values()}
    if len(said) > 1:
        raise WeightsError(f"{path}: its shards carry different formulas; they are not of one checkpoint")
    text = next(iter(said), None)
    where = os.fspath(path)
    if text is None and (side := path.parent / SIDE).is_file() and path.name in (WHOLE, INDEX):
        if side.stat().st_size > LONGEST_INDEX:
            raise WeightsError(f"{side} has {side.stat().st_size:,} bytes; {LONGEST_INDEX:,} are allowed")
        where, text = os.fspath(side), side.read_text(encoding="utf-8", errors="replace")
    return None if text is None else read_json(text.encode("utf-8", "replace"), where, deepest=32)


def _parts(tensors: Mapping[str, Stored], shard_bytes: int | None) -> list[dict[str, Stored]]:
    parts: list[dict[str, Stored]] = [{}]
    room = shard_bytes
    for name, one in tensors.items():
        size = size_of(one.dtype, one.shape)
        if room is not None and shard_bytes is not None and size > room and parts[-1]:
            parts.append({})
            room = shard_bytes
        parts[-1][name] = one
        room = None if room is None else room - size
    return parts


def _write_shards(folder: Path, parts: list[dict[str, Stored]], said: Mapping[str, str]) -> list[Path]:
    """Shards under names that none has yet, then the index: its rename is what makes them the checkpoint."""
    names = [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    if any((folder / name).exists() for name in names):
        mark = secrets.token_hex(4)
        names = [name.replace(".safetensors", f"-{mark}.safetensors") for name in names]
    written: list[Path] = []
    try:
        for name, part in zip(names, parts, strict=True):
            with replacing(folder / name) as file:
                write_file(file, part, said)
            written.append(folder / name)
        weight_map = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
        total = sum(size_of(one.dtype, one.shape) for part in parts for one in part.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        replace_text(folder / INDEX, json.dumps(index, indent=1))
    except BaseException:
        for one in written:
            one.unlink(missing_ok=True)
        raise
    return [*written, folder / INDEX]


def _files_of(folder: Path) -> set[Path]:
    """The files that are a folder's checkpoint now; those of others are left alone."""
    found = {folder / WHOLE} if (folder / WHOLE).exists() else set[Path]()
    if (folder / INDEX).exists():
        found.add(folder / INDEX)
        with suppress(WeightsError, OSError):  # what a damaged index names is not known to be its own
            found.update(_shards(folder / INDEX)[0])
    return found
