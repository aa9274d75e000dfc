"""Whether weights belong to a model: told by site, not by a list of every tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from normula.spec import Spec

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


class StateError(ValueError, RuntimeError):
    """Weights of another spec; a RuntimeError too, as torch has it."""


def check_state(own: Mapping[str, Any], given: Mapping[str, Any], spec: Spec) -> None:
    """Compare names and shapes.

    Raises:
        StateError: they differ.
    """
    missing, unexpected = own.keys() - given.keys(), given.keys() - own.keys()
    shapes = [
        f"{name} has the shape {tuple(given[name].shape)}, here it is {tuple(own[name].shape)}"
        for name in own
        if name in given and given[name].shape != own[name].shape
    ]
    said = []
    if missing:
        said.append(f"missing: {_sites(missing)}")
    if unexpected:
        said.append(f"not of this model: {_sites(unexpected)}")
    if shapes:
        said.append("; ".join(shapes[:3]) + (f"; and {len(shapes) - 3} more" if len(shapes) > 3 else ""))
    if said:
        what = f"{spec.placed.formula}, {spec.layers} layers, width {spec.width}, {spec.norm}"
        raise StateError(f"these weights are not of this model ({what}). {'. '.join(said)}")


def _sites(names: Iterable[str]) -> str:
    """Names with the number of the layer left open, each with how often it comes."""
    counts: dict[str, int] = {}
    for name in sorted(names):
        site = _NUMBER.sub("*", name)
        counts[site] = counts.get(site, 0) + 1
    return ", ".join(site + (f" ({count} times)" if count > 1 else "") for site, count in counts.items())
