"""Here lives Situation: what is known of a model that is to be trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from normula.catalog import placement
from normula.formula import Formula, Placement
from normula.formula.errors import nearest

WORDS: Mapping[str, tuple[str, ...]] = {
    "tuning": ("none", "some", "much"),
    "precision": ("fp32", "bf16", "fp16"),
    "task": ("language", "vision", "translation"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a model that is to be trained.

        >>> Situation(depth=48, precision="bf16").said
        {'depth': 48, 'precision': 'bf16'}

    Args:
        depth: L, layers; of an encoder-decoder those of the deeper stack.
        width: D.
        params: parameters.
        pretrained: whether it starts from weights that were trained.
        base: the placement those weights were trained under: a name, a formula, or a Placement.
        tuning: how much the rate, its warmup and the weights can be tuned: none, some, much.
        precision: fp32, bf16 or fp16.
        task: language, vision or translation.

    Raises:
        ValueError: a field that cannot be, or a base of a model from scratch.
    """

    depth: int | None = None
    width: int | None = None
    params: float | None = None
    pretrained: bool = False
    base: str | Formula | Placement | None = None
    tuning: str | None = None
    precision: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        for name in ("depth", "width"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        if self.params is not None and not (math.isfinite(self.params) and self.params >= 1):
            raise ValueError(f"params is a number of parameters, such as 7e9, not {self.params!r}")
        for name, words in WORDS.items():
            value = getattr(self, name)
            if value is not None and value not in words:
                raise ValueError(f"{name} is one of {', '.join(words)}, not {value!r}{nearest(str(value), words)}")
        if self.base is not None:
            if not self.pretrained:
                raise ValueError("a base is the placement of weights that were trained; say that they are pretrained")
            object.__setattr__(self, "base", placement(self.base))

    @property
    def said(self) -> dict[str, Any]:
        """What is known, for JSON."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        known["base"] = self.base.name if isinstance(self.base, Placement) else None
        return {name: value for name, value in known.items() if value is not None and value is not False}

    @property
    def has_clear_skip(self) -> bool | None:
        """Whether the stream of the base passes its layers unchanged; None without a base."""
        if not isinstance(self.base, Placement):
            return None
        return all(formula.skip == "1" for formula in self.base.formulas)
