"""What weights are of, in one line and as data."""

from __future__ import annotations

from typing import Any

from normula.spec.spec import Spec


def stamp(spec: Spec) -> str:
    """What a network computes around its sublayers: its formula, and what comes before and after.

    >>> stamp(Spec(placement="pre"))
    'x + f(norm(x)); final norm(x)'
    """
    placed = spec.placed
    around = [f"embed {placed.embed}"] if str(placed.embed) != "x" else []
    around += [f"final {placed.final}"] if str(placed.final) != "x" else []
    around += [f"{name} from {start}" for name, start in placed.streams]
    around += [f"{part.formula} up to layer {part.until}" for part in placed.ranges]
    around += [f"inside {placed.operator}"] if placed.operator else []
    return "; ".join([str(placed.formula), *around])


def about(spec: Spec) -> dict[str, Any]:
    """The spec and its stamp, as they travel with weights."""
    return {"formula": stamp(spec), "spec": spec.to_dict()}
