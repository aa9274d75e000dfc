"""Here lives Corpus: bytes to train on and bytes to validate on."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

VOCABULARY = 256
STANDARD_LIBRARY_BYTES = 4_000_000
"""Enough that a short race never sees a byte twice, little enough to read at once."""


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
        counts = np.bincount(self.train, minlength=VOCABULARY).astype(np.float64) + 1.0
        return float(-np.log(counts[ids] / counts.sum()).mean())


def corpus(path: str | Path | None = None, window: int = 64) -> Corpus:
    """The user's file, or without one the sources of Python's standard library.

    Args:
        path: a text file; its last tenth is the validation part.
        window: T, tokens that a model sees at once; each part must hold several windows.

    Raises:
        ValueError: the file is missing, empty, not text, or too short.
    """
    return _standard_library() if path is None else _file(Path(path), window)


def _file(path: Path, window: int) -> Corpus:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    if not data:
        raise ValueError(f"{path} is empty; give a text of at least {40 * window} bytes")
    if b"\0" in data or _is_binary(data):
        raise ValueError(f"{path} is not text (it holds zero bytes or is not UTF-8); give a text file")
    # the validation part is a tenth, and must hold a few windows for its loss to mean something
    if len(data) < 40 * window:
        raise ValueError(f"{path} has {len(data)} bytes; windows of {window} tokens need at least {40 * window}")
    cut = len(data) * 9 // 10
    return _corpus(path.name, data[:cut], data[cut:])


def _is_binary(data: bytes) -> bool:
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
        parts[count % 10 == 9].append(data)
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
