"""Here lives Corpus: bytes to train on and bytes to validate on."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normula.data.batch import unigram_loss

Bytes = NDArray[np.uint8]

VOCABULARY = 256
STANDARD_LIBRARY_BYTES = 4_000_000
"""Enough that a short race never sees a byte twice, little enough to read at once."""

EVERY = 10
"""Of several files, one in ten is for validation."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text split in two.

    Attributes:
        name: where it comes from.
        train, validation: bytes.
        digest: of both, so that a result can say what it was trained on.
    """

    name: str
    train: Bytes
    validation: Bytes
    digest: str

    def unigram_loss(self, ids: NDArray[np.int64]) -> float:
        """Loss in nats on these bytes of the best guess that ignores the context.

        This is where a model ends that learns how often each byte comes, and nothing else.
        """
        return unigram_loss(self.train, ids, VOCABULARY)


def corpus(path: Path | str | Sequence[Path | str] | None = None, window: int = 64) -> Corpus:
    """The user's text, or without one the sources of Python's standard library.

    Args:
        path: a text file, whose last tenth is the validation part; or several, or a folder, of which every tenth file
            is (the last one where there are fewer than ten). What is hidden in a folder, or no text, is passed over,
            and what is the same twice is read once.
        window: T, tokens that a model sees at once; each part must hold several windows.

    Raises:
        ValueError: a file is missing, empty, not text, or too short.
    """
    if path is None:
        return _standard_library()
    several = [Path(one) for one in ([path] if isinstance(path, str | Path) else path)]
    if not several:
        raise ValueError("a text needs at least one file; without any, leave the path out")
    if len(several) == 1 and not several[0].is_dir():
        return _file(several[0], window)
    texts: dict[bytes, None] = {}
    for one in several:
        texts |= dict.fromkeys(_folder(one) if one.is_dir() else [_read(one, window)])
    return parted(_joined_name(several), list(texts), window)


def parted(name: str, texts: Sequence[bytes], window: int) -> Corpus:
    """A corpus of several texts, of which every tenth is for validation, or the last of fewer.

    Raises:
        ValueError: they are too short.
    """
    last = len(texts) - 1 if len(texts) < EVERY else -1
    is_held = [place % EVERY == EVERY - 1 or place == last for place in range(len(texts))]
    train = b"\n".join(text for text, held in zip(texts, is_held, strict=True) if not held)
    validation = b"\n".join(text for text, held in zip(texts, is_held, strict=True) if held)
    for part, data, least in (("training", train, 36 * window), ("validation", validation, 4 * window)):
        if len(data) < least:
            raise ValueError(
                f"{name} has {len(data)} bytes for {part}, in {is_held.count(part == 'validation')} of {len(texts)} "
                f"texts (every tenth is for validation); windows of {window} tokens need at least {least}"
            )
    return _corpus(name, train, validation)


def _folder(folder: Path) -> Iterator[bytes]:
    """The texts in a folder and those below, in order of their names.

    Raises:
        ValueError: there are none.
    """
    found = False
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            data = _bytes(path)
            if data and not _is_binary(data):
                found = True
                yield data
    if not found:
        raise ValueError(f"{folder} holds no text file")


def _joined_name(several: Sequence[Path]) -> str:
    return several[0].name if len(several) == 1 else f"{several[0].name} and {len(several) - 1} more"


def _file(path: Path, window: int) -> Corpus:
    data = _read(path, window)
    # the validation part is a tenth, and must hold a few windows for its loss to mean something
    if len(data) < 40 * window:
        raise ValueError(f"{path} has {len(data)} bytes; windows of {window} tokens need at least {40 * window}")
    cut = len(data) * 9 // 10
    return _corpus(path.name, data[:cut], data[cut:])


def _read(path: Path, window: int) -> bytes:
    """A text that the user named."""
    data = _bytes(path)
    if not data:
        raise ValueError(f"{path} is empty; give a text of at least {40 * window} bytes")
    if _is_binary(data):
        raise ValueError(f"{path} is not text (it holds zero bytes or is not UTF-8); give a text file")
    return data


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None


def _is_binary(data: bytes) -> bool:
    if b"\0" in data:
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        # old encodings have few bytes that are no text; compressed data have a third
        control = sum(data[:4096].count(byte) for byte in range(32) if byte not in (9, 10, 12, 13))
        return control > len(data[:4096]) // 50
    return False


@cache
def _standard_library() -> Corpus:
    """Sources of the standard library, in order of their names; every tenth file is for validation."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3"}
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    size = count = 0
    for path in sorted(_sources(folder, skipped)):
        data = path.read_bytes()
        if not data:
            continue
        parts[count % EVERY == EVERY - 1].append(data)
        count, size = count + 1, size + len(data)
        if size > STANDARD_LIBRARY_BYTES:
            break
    return _corpus("Python's standard library", b"\n".join(parts[0]), b"\n".join(parts[1]))


def _sources(folder: Path, skipped: set[str]) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in skipped]
        yield from (Path(here, name) for name in names if name.endswith(".py"))


def _corpus(name: str, train: bytes, validation: bytes) -> Corpus:
    digest = hashlib.sha256(train + b"\0" + validation).hexdigest()[:16]
    return Corpus(
        name=name,
        train=np.frombuffer(train, dtype=np.uint8),
        validation=np.frombuffer(validation, dtype=np.uint8),
        digest=digest,
    )
