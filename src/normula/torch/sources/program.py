"""Programs saved by torch.export. What such a file holds pickled is refused: a pickle runs code when it is loaded.

A program of unknown origin should still not be read: torch rebuilds its symbolic sizes by evaluating text.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from normula.torch.sources.ask import Ask
from normula.torch.sources.errors import SourceError, first_line
from normula.torch.sources.source import Source

FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""While this is set, torch.load reads tensors and plain containers, whatever its caller asked for."""


def from_program(path: Path, asks: Mapping[str, Ask]) -> Source:
    """A program and the inputs that it was exported with.

    Raises:
        SourceError: there is no such file, it is no program, or it holds pickled objects.
    """
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    if asks:
        raise SourceError(f"{path.name} has the inputs that it was exported with; --input would have no effect")
    _refuse_pickles(path)
    try:
        with _tensors_only():
            program = torch.export.load(path)
    except Exception as error:  # torch's errors about files are many
        raise SourceError(f"{path} cannot be read as a program of torch.export ({first_line(error)})") from None
    if program.example_inputs is None:
        raise SourceError(f"{path} was saved without its example inputs; export it again with them")
    args, kwargs = program.example_inputs
    return Source(model=program, args=tuple(args), kwargs=dict(kwargs), title=path.name)


def _refuse_pickles(path: Path) -> None:
    """Weights and inputs are read as tensors only; objects of other kinds have no such reader."""
    if not zipfile.is_zipfile(path):
        raise SourceError(f"{path} is no program of torch.export; save one with torch.export.save(program, 'NAME.pt2')")
    try:
        reader: Any = torch._C.PyTorchFileReader(str(path))
        names = list(reader.get_all_records())
        configs = [reader.get_record(name) for name in names if name.endswith("_constants_config.json")]
    except RuntimeError as error:
        raise SourceError(f"{path} is no program of torch.export ({first_line(error)})") from None
    if not any("models/" in name for name in names):
        raise SourceError(f"{path} holds no program; save one with torch.export.save(program, 'NAME.pt2')")
    if any(word in config for config in configs for word in (b"custom_obj", b"opaque_obj")) or any(
        word in name for name in names for word in ("custom_obj", "opaque_obj")
    ):
        raise SourceError(f"{path} holds pickled objects, which are never loaded; export a model without them")


@contextmanager
def _tensors_only() -> Iterator[None]:
    before = os.environ.get(FORCE)
    os.environ[FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE]
        else:
            os.environ[FORCE] = before
