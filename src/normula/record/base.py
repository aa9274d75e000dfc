"""Records to JSON and back: one schema version, numbers that are not finite kept by name."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import msgspec

SCHEMA = 1

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a measurement was made.

    Attributes:
        versions: of normula, numpy and the framework.
        python: version of Python.
        machine: processor and system.
        device: `cpu`, `cuda:0` ...
    """

    versions: dict[str, str]
    python: str
    machine: str
    device: str


def environment(*packages: str, device: str = "cpu") -> Environment:
    """This machine and what is installed on it: normula, numpy and these packages."""
    versions = {}
    for package in ("normula", "numpy", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    machine = f"{platform.machine()} {platform.system()}"
    return Environment(versions=versions, python=platform.python_version(), machine=machine, device=device)


class Live:
    """What a record holds only where it was made: it is written as null, and nothing of it comes back."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def to_dict(record: Any) -> Any:
    """A record as plain lists, dictionaries, texts and numbers; `nan`, `inf` and `-inf` become texts."""
    return _named(msgspec.to_builtins(record, enc_hook=_null))


def to_json(record: Any) -> str:
    """A record as JSON that every reader accepts."""
    return json.dumps(to_dict(record), indent=1, allow_nan=False)


def from_dict(kind: type[R], data: Any) -> R:
    """A record of this kind from what `to_dict` gave.

    Raises:
        ValueError: the data are not such a record, or of another schema; the message says where.
    """
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"a record of schema {SCHEMA} is read here; this one has schema {data['schema']!r}")
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"this is not a record of kind {kind.__name__}: {error}") from None


def from_json(kind: type[R], text: str) -> R:
    """A record of this kind from JSON."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    return from_dict(kind, data)


def _null(value: Any) -> None:
    if not isinstance(value, Live):
        raise TypeError(f"a record holds no {type(value).__name__}")


def _named(data: Any) -> Any:
    match data:
        case dict():
            return {key: _named(value) for key, value in data.items()}
        case list() | tuple():
            return [_named(value) for value in data]
        case float() if not math.isfinite(data):
            return "nan" if math.isnan(data) else "inf" if data > 0 else "-inf"
    return data
