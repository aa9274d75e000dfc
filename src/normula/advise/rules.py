"""Here live the rules of advice: data, read from a file and checked once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from normula.advise.situation import Situation
from normula.record.advice import Scale

Says = Literal["first", "alternative", "avoid", "do"]

BASE = "base"
"""In a rule, the placement that trained weights belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A piece of evidence as the file has it: a text and who says it, or a claim of the ledger by its name."""

    kind: str
    scale: Scale
    text: str = ""
    source: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is said where all conditions hold.

    Args:
        name: of the rule.
        says: what the placement is, or that something is to be done.
        when: conditions on the situation by name, as `holds` has them.
        placement: a name of the catalogue, or BASE.
        rank: among the firsts and among the alternatives.
        why, text: of a placement, and of what is to be done.
        evidence: by name.
        contested: whether sources disagree.
        exact: whether algebra alone settles it.
    """

    name: str
    says: Says
    when: Mapping[str, Any]
    evidence: tuple[str, ...]
    placement: str = ""
    rank: int = 0
    why: str = ""
    text: str = ""
    contested: bool = False
    exact: bool = False

    def holds(self, situation: Situation) -> bool:
        """Whether every condition holds: one about something that is not known does not."""
        return all(_holds(name, wanted, situation) for name, wanted in self.when.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules and the evidence that they name."""

    rules: tuple[Rule, ...]
    evidence: Mapping[str, Source]


@cache
def rules() -> Rules:
    """The rules of the file."""
    text = (files("normula.advise") / "rules.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    return Rules(
        rules=tuple(Rule(**{**one, "evidence": tuple(one["evidence"])}) for one in data["rule"]),
        evidence={name: Source(**one) for name, one in data["evidence"].items()},
    )


def _holds(name: str, wanted: Any, situation: Situation) -> bool:
    if name == "base_has_clear_skip":
        return situation.has_clear_skip is wanted
    if name.endswith("_at_least"):
        value = getattr(situation, name.removesuffix("_at_least"))
        return value is not None and value >= wanted
    if name.endswith("_at_most"):
        value = getattr(situation, name.removesuffix("_at_most"))
        return value is not None and value <= wanted
    value = getattr(situation, name)
    return value in wanted if isinstance(wanted, list) else value is wanted
