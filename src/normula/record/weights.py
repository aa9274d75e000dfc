"""Weights on disk: a safetensors file under the plan's names for every framework, with the formula attached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normula.record.checkpoint import open_checkpoint, write_checkpoint
from normula.record.tensorfile import Stored, WeightsError

__all__ = ["WeightsError", "array_of", "check_formula", "read_arrays", "read_weights", "stored", "write_weights"]

KINDS = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{"complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"},
}
"""The format's word for each dtype of NumPy, and of ml_dtypes."""


def write_weights(path: str | os.PathLike[str], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write arrays by name, and what is known about them; a file that was there is whole until the new one is.

    Args:
        path: a file that ends in .safetensors, or a folder.
        arrays: by the plan's names.
        about: plain data; for a stack its spec, under `spec`, and its formula, under `formula`.
    """
    write_checkpoint(path, {name: stored(array) for name, array in arrays.items()}, about)


def read_weights(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays by name, and what is known about them.

    Raises:
        FileNotFoundError: there is no such file.
        WeightsError: it is no safetensors file, or carries no formula.
    """
    found = open_checkpoint(path)
    if found.about is None or "formula" not in found.about:
        raise WeightsError(f"{os.fspath(path)} carries no formula; it was not written by normula")
    return {name: array_of(entry, found.bytes_of(name)) for name, (_, entry) in found.entries.items()}, found.about


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Arrays by name, of a file of anybody's.

    Raises:
        FileNotFoundError: there is no such file.
        WeightsError: it is no safetensors file.
    """
    found = open_checkpoint(path)
    return {name: array_of(entry, found.bytes_of(name)) for name, (_, entry) in found.entries.items()}


def stored(array: Any) -> Stored:
    """An array to be written."""
    plain = np.asarray(array)
    kind = KINDS.get(plain.dtype.name)
    if kind is None:
        raise WeightsError(f"a safetensors file holds no arrays of dtype {plain.dtype}")

    def read() -> Any:
        return np.ascontiguousarray(plain).reshape(-1).view(np.uint8).data if plain.size else b""

    return Stored(dtype=kind, shape=plain.shape, read=read)


def array_of(entry: Any, held: memoryview) -> NDArray[Any]:
    """An array over the bytes of a tensor."""
    names = {kind: name for name, kind in KINDS.items()}
    if entry.dtype not in names:
        raise WeightsError(f"NumPy has no dtype for {entry.dtype}")
    return np.frombuffer(held, dtype=_dtype(names[entry.dtype])).reshape(entry.shape)


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


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
