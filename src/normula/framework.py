"""The rooms of the frameworks, by name: loaded when they are asked for, never before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from normula.formula.errors import nearest

ROOMS = {"torch": "torch", "flax": "flax", "linen": "flax", "nnx": "flax"}
"""For each framework that a user can name, the room that speaks it, which is also its extra."""

PACKAGES = {"torch": ("torch",), "flax": ("jax", "flax")}
"""For each room, the packages whose versions belong into a record."""

NEEDED = {"torch": ("torch", "safetensors"), "flax": ("jax", "flax", "optax", "safetensors")}
"""For each room, the packages without which it cannot be loaded."""

_current: ContextVar[str] = ContextVar("framework", default="torch")


def room(framework: str | None = None) -> ModuleType:
    """The room of a framework; None for that of the work at hand, which is PyTorch's unless `using` says another.

    Raises:
        ValueError: an unknown framework.
        ImportError: the framework is not installed; the message names the extra that installs it.
    """
    name = _room_name(framework)
    try:
        return import_module(f"normula.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(_missing(error.name, name)) from None


def check_installed(framework: str | None = None) -> None:
    """Find out whether a framework is there, without the seconds that loading it takes.

    Raises:
        ValueError, ImportError: as `room`.
    """
    name = _room_name(framework)
    for package in NEEDED[name]:
        if find_spec(package) is None:
            raise ImportError(_missing(package, name))


def room_path(framework: str | None = None) -> Path:
    """The folder of a framework's room."""
    return Path(__file__).parent / _room_name(framework)


def packages(framework: str | None = None) -> tuple[str, ...]:
    """What a framework consists of."""
    return PACKAGES[_room_name(framework)]


def framework_of(what: Any) -> str | None:
    """The framework that an object is a module of; None where it is of none. No framework is loaded."""
    roots = [kind.__module__.split(".")[0] for kind in type(what).__mro__]
    return next((name for name in ("torch", "flax") if name in roots), None)


@contextmanager
def using(framework: str) -> Iterator[None]:
    """Inside, `room()` is the room of this framework."""
    _room_name(framework)
    token = _current.set(framework)
    try:
        yield
    finally:
        _current.reset(token)


def _missing(package: str | None, room: str) -> str:
    return f"{package} is not installed; install it with: pip install 'normula[{room}]'"


def _room_name(framework: str | None) -> str:
    framework = _current.get() if framework is None else framework
    if framework not in ROOMS:
        raise ValueError(f"a framework is one of {', '.join(ROOMS)}, not {framework!r}{nearest(str(framework), ROOMS)}")
    return ROOMS[framework]
