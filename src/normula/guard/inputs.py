"""The arguments of the forward that a stamp was made with, as plain data: they travel with it, and come back the same.

Whole numbers and short tensors are written as they are. A long tensor of real numbers is written as its mean and
deviation, and drawn from a counter, so that every machine draws the same.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from normula.record.tensorfile import WeightsError

LONGEST: Final = 1024
"""Real numbers that are written one by one; more are drawn."""

LARGEST: Final = 1 << 18
"""Bytes of one tensor that are written."""

DTYPES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

MOST: Final = 1 << 26
"""Numbers of one tensor that are made when a stamp is read: whoever wrote a file may not fill the memory."""


def written(args: Sequence[Any], kwargs: Mapping[str, Any], as_array: Callable[[Any], Any]) -> Any | None:
    """Arguments as plain data; None where one cannot be written."""
    try:
        return {
            "args": [_written(one, as_array) for one in args],
            "kwargs": {name: _written(one, as_array) for name, one in kwargs.items()},
        }
    except TypeError:
        return None


def made(data: Any, as_input: Callable[[NDArray[Any]], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments again.

    Raises:
        WeightsError: the data are no arguments.
    """
    try:
        args = tuple(_made(one, as_input) for one in data["args"])
        return args, {str(name): _made(one, as_input) for name, one in data["kwargs"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, zlib.error) as error:
        raise WeightsError(f"the inputs in a stamp do not read ({type(error).__name__}: {error})") from None


def _written(value: Any, as_array: Callable[[Any], Any]) -> Any:
    array = as_array(value)
    if array is not None:
        return {"tensor": _array(np.asarray(array))}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return {"tuple" if isinstance(value, tuple) else "list": [_written(one, as_array) for one in value]}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _written(one, as_array) for name, one in value.items()}}
    raise TypeError(type(value).__name__)


def _array(array: NDArray[Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    is_long = array.dtype.kind == "f" and array.size > LONGEST and bool(np.isfinite(array).all())
    if is_long and len(np.unique(array.reshape(-1)[:LONGEST])) > 3:  # a mask has few values, and means them
        return {**said, "mean": float(array.mean()), "deviation": float(array.std())}
    if array.nbytes > LARGEST:
        raise TypeError("a long tensor")
    packed = zlib.compress(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes(), 6)
    return {**said, "data": base64.b64encode(packed).decode("ascii")}


def _made(said: Any, as_input: Callable[[NDArray[Any]], Any]) -> Any:
    ((kind, value),) = said.items()
    match kind:
        case "tensor":
            return as_input(_unpacked(value))
        case "value" if value is None or isinstance(value, bool | int | float | str):
            return value
        case "tuple":
            return tuple(_made(one, as_input) for one in value)
        case "list":
            return [_made(one, as_input) for one in value]
        case "dict":
            return {str(name): _made(one, as_input) for name, one in value.items()}
    raise ValueError(f"no argument is a {str(kind)[:20]!r}")


def _unpacked(said: Any) -> NDArray[Any]:
    shape = tuple(said["shape"])
    if not all(type(length) is int and length >= 0 for length in shape) or math.prod(shape) > MOST:
        raise ValueError("the shape of an input is not possible")
    if said["dtype"] not in DTYPES:  # NumPy would read any text as a type, with a parser of its own
        raise ValueError("an input has no dtype of numbers")
    dtype = np.dtype(said["dtype"])
    if "data" not in said:
        values = float(said["mean"]) + float(said["deviation"]) * drawn(math.prod(shape))
        return values.reshape(shape).astype(dtype)
    size = math.prod(shape) * dtype.itemsize
    raw = zlib.decompressobj().decompress(base64.b64decode(said["data"], validate=True), size + 1)
    if len(raw) != size:
        raise ValueError("an input has another size than its shape")
    return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(shape).astype(dtype)


def drawn(count: int) -> NDArray[np.float64]:
    """Numbers of mean 0 and deviation 1 from a counter, with the mixing of splitmix64.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, figure 16.
    """
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) / 2.0**53
    return (uniform - 0.5) * math.sqrt(12)
