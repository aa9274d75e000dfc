"""A reading held against a line of the table: what is right, unknown or wrong."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from normula.formula import Formula
from normula.formula.errors import FormulaError

KINDS = re.compile(r"\b(?:attn|cross|mlp|moe|ssm|conv|pool|fourier)\(")
NUMBERS = re.compile(r"(?<![\w.])(?!0\.5\b|2\b)\d+(?:\.\d+)?")


@dataclass(slots=True)
class Comparison:
    """What came of a line: its verdict is of the structure and the flags; kinds and the rest are apart."""

    verdict: Literal["right", "unknown", "wrong"]
    notes: list[str] = field(default_factory=list)


def compare(truth: dict[str, Any], reading: dict[str, Any]) -> Comparison:
    """Structure by canonical form, layer by layer; then the flags; then kinds, norm, epsilon and what is inside."""
    wanted = [_canonical(stage["block"]) for stage in truth["stages"] for _ in range(stage["layers"])]
    found = [stage["block"] for stage in reading["stages"] for _ in range(stage["layers"])]
    notes: list[str] = []
    if not found or any(block == "unknown" for block in found):
        notes += sorted({stage["seen"] for stage in reading["stages"] if stage["block"] == "unknown"})
        left = Counter(_structure(block) for block in found if block != "unknown")
        if left - Counter(_structure(block) for block in wanted):
            notes += _both(wanted, found)
            return Comparison("wrong", notes)
        return Comparison("unknown", notes)
    if not _equal([_structure(b) for b in wanted], [_structure(b) for b in found]):
        return Comparison("wrong", _both(wanted, found))
    verdict: Literal["right", "wrong"] = "right"
    for flag in ("embed_norm", "final_norm"):
        if sum(_flags(truth[flag])) != sum(_flags(reading[flag])):
            verdict = "wrong"
            notes.append(f"{flag}: {truth[flag]} is read as {reading[flag]}")
        elif _flags(truth[flag]) != _flags(reading[flag]) and len(truth["stages"]) == len(reading["stages"]):
            notes.append(f"[flags] {flag}: {truth[flag]} is read as {reading[flag]}")
    if not _equal([_lettered(b) for b in wanted], [_lettered(b) for b in found]):
        notes += ["[kinds] " + note for note in _both(wanted, found)]
    if _word(truth["norm"]) != _word(reading["norm"]):
        notes.append(f"[norm] {truth['norm']} is read as {reading['norm']}")
    if (truth["eps"] is None) != (reading["eps"] is None) or (
        truth["eps"] is not None and abs(reading["eps"] - truth["eps"]) > 1e-3 * truth["eps"]
    ):
        notes.append(f"[eps] {truth['eps']} is read as {reading['eps']}")
    if bool(truth["inner"]) != bool(reading["inner"]):
        notes.append(f"[inner] {truth['inner']!r} is read as {reading['inner']}")
    return Comparison(verdict, notes)


def _canonical(block: str) -> str:
    try:
        return str(Formula(block))
    except FormulaError:
        return block


def _structure(block: str) -> str:
    """The canonical form with one word for every sublayer, and a letter for every measured constant."""
    if block == "unknown":
        return block
    return _canonical(KINDS.sub("mlp(", _lettered(block)))


def _lettered(block: str) -> str:
    return NUMBERS.sub("a", block)


def _equal(wanted: list[str], found: list[str]) -> bool:
    """In order; the table may also group layers that alternate."""
    return wanted == found or Counter(wanted) == Counter(found)


def _both(wanted: list[str], found: list[str]) -> list[str]:
    return [f"want {n} x {block}" for block, n in Counter(wanted).items()] + [
        f"read {n} x {block}" for block, n in Counter(found).items()
    ]


def _flags(value: bool | list[bool]) -> list[bool]:
    return value if isinstance(value, list) else [value]


def _word(norm: str) -> str:
    return norm.split(" ")[0].lower()
