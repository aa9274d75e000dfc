"""The rooms of the frameworks, by name: loaded when they are asked for, never before."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from normula.formula.errors import nearest

ROOMS = {"torch": "torch", "flax": "flax", "linen": "flax", "nnx": "flax"}
"""For each framework that a user can name, the room that speaks it, which is also its extra."""


def room(framework: str) -> ModuleType:
    """The room of a framework.

    Raises:
        ValueError: an unknown framework.
        ImportError: the framework is not installed; the message names the extra that installs it.
    """
    if framework not in ROOMS:
        raise ValueError(f"a framework is one of {', '.join(ROOMS)}, not {framework!r}{nearest(str(framework), ROOMS)}")
    name = ROOMS[framework]
    try:
        return import_module(f"normula.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "normula":
            raise ImportError(f"this version of normula has no {name} room; use framework='torch'") from None
        raise ImportError(f"{error.name} is not installed; install it with: pip install 'normula[{name}]'") from None
