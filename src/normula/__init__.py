"""normula: one line of text says where a network normalises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normula import guard
    from normula.advise import advise
    from normula.catalog import placement, placements
    from normula.claims import claims
    from normula.compare import compare
    from normula.explain import explain
    from normula.flow import flow
    from normula.formula import Formula, FormulaError, Placement
    from normula.race import race
    from normula.read import read
    from normula.rewire import rewire
    from normula.spec import Spec

__all__ = [
    "Formula",
    "FormulaError",
    "Placement",
    "Spec",
    "advise",
    "build",
    "claims",
    "compare",
    "explain",
    "flow",
    "guard",
    "placement",
    "placements",
    "race",
    "read",
    "rewire",
]

__version__ = "0.1.0"

_HOMES = {
    "Formula": "normula.formula",
    "FormulaError": "normula.formula",
    "Placement": "normula.formula",
    "placement": "normula.catalog",
    "placements": "normula.catalog",
    "Spec": "normula.spec",
    "flow": "normula.flow",
    "advise": "normula.advise",
    "race": "normula.race",
    "read": "normula.read",
    "rewire": "normula.rewire",
    "claims": "normula.claims",
    "compare": "normula.compare",
    "explain": "normula.explain",
}

_ROOMS = ("guard",)
"""Names that are rooms, with verbs of their own inside."""


def build(spec: Spec, framework: str = "torch", modules: Mapping[str, Callable[[int], Any]] | None = None) -> Any:
    """A model of a spec.

    Args:
        spec: what to build.
        framework: `torch`, `linen` or `nnx`.
        modules: for sublayers of your own, a function from the layer (from 0) to a module.

    Returns:
        A module from (B, T, D) to (B, T, D); with a vocabulary from ids (B, T) to logits (B, T, V).

    Raises:
        ValueError: the spec cannot be built.
        ImportError: the framework is not installed; the message names the extra.
    """
    from normula.framework import room

    return room(framework).BUILDERS[framework](spec, modules=modules)


class _Package(ModuleType):
    """A room and its verb may share a name, such as flow: importing the room does not hide the verb."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load a room when one of its names is first asked for."""
    if name in _ROOMS:
        return import_module(f"normula.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'normula' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
