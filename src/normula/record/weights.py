"""Weights on disk: a safetensors file under the plan's names for every framework, with the formula attached."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY = "normula"
"""Where the spec stands in the file's metadata."""


class WeightsError(ValueError):
    """A file that is not what it should be, or of another formula."""


def write_weights(path: str | os.PathLike[str], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write arrays by name, and what is known about them; a file that was there is whole until the new one is.

    Args:
        path: a file that ends in .safetensors.
        arrays: by the plan's names.
        about: plain data; for a stack its spec, under `spec`, and its formula, under `formula`.
    """
    from safetensors.numpy import save_file

    path = Path(path)
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(plain, name, metadata={KEY: json.dumps(about)})
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_weights(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays by name, and what is known about them.

    Raises:
        FileNotFoundError: there is no such file.
        WeightsError: it is no safetensors file, or carries no formula.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {os.fspath(path)}")
    try:
        with safe_open(path, framework="numpy") as file:
            about = (file.metadata() or {}).get(KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except SafetensorError as error:
        raise WeightsError(f"{os.fspath(path)} is no safetensors file, or is cut short: {error}") from None
    if about is None:
        raise WeightsError(f"{os.fspath(path)} carries no formula; it was not written by normula")
    return arrays, json.loads(about)


def check_formula(found: str, wanted: str, where: str) -> None:
    """Compare the formula that weights carry with a model's.

    Raises:
        WeightsError: they differ; the message names both.
    """
    if found != wanted:
        raise WeightsError(
            f"the weights in {where} are of {found} and this model is {wanted}; where the shapes fit, the function "
            "would be another one. Pass allow=True to load them all the same"
        )
