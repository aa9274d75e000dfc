"""Here live the records of advice: which placement for a situation, and the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from normula.record.base import SCHEMA

Scale = Literal["large", "small", "closed form", "field", "own"]
Strength = Literal["exact", "strong", "moderate", "weak", "contested", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Something that was found, and by whom.

    Attributes:
        kind: `paper`, `claim` (of normula's ledger), `practice` (models that have it), `field` (reports of trouble),
            `race` or `reading` (the user's own).
        text: what was found.
        source: where it stands.
        scale: of trained models `large` (from 10**8 parameters) or `small`; `closed form` for algebra; `field` for
            reports; `own` for what the user measured.
    """

    kind: str
    text: str
    source: str
    scale: Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A placement, and why to take it or leave it.

    Attributes:
        placement: its name in the catalogue, or a formula.
        title: its usual name.
        formula: what it computes.
        why: in a sentence or two.
        cost: what it costs; empty for what is to be left.
        strength: of the evidence: `exact` (algebra alone settles it), `strong` (large models, more than one source),
            `moderate` (large models, one source), `weak` (small models, algebra and reports alone), `contested`
            (sources disagree), `own` (the user's own race).
    """

    placement: str
    title: str
    formula: str
    why: str
    cost: str
    strength: Strength
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Something to do, whatever the placement."""

    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to take in a situation.

    Attributes:
        situation: what was said of it; what was not said is not there.
        first: what to take.
        alternatives: what else may serve, the better first.
        avoid: what to leave.
        practices: what to do as well.
        cautions: how far the evidence carries.
    """

    situation: dict[str, Any]
    first: Choice
    alternatives: tuple[Choice, ...]
    avoid: tuple[Choice, ...]
    practices: tuple[Practice, ...]
    cautions: tuple[str, ...]
    schema: int = SCHEMA
