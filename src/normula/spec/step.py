"""Here lives Step: a formula at one place of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from normula.formula import Formula
from normula.formula.tree import Call
from normula.formula.words import INNER, STEP, SUBLAYERS

INNER_PARTS: Mapping[str, tuple[str, ...]] = {
    "qk": ("q", "k"),
    "qkv": ("q", "k", "v"),
    "out": ("heads",),
    "mid": ("mid",),
}
"""What an inner site of the notation is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A formula at one place of the stack.

    Attributes:
        prefix: where its parameters live, such as `layers.3.attn`; a layer's formula has `layers.3`.
        formula: what it does.
        word: the sublayer that `f` stands for; None where the formula names its own.
        symbols: values of the depth symbols.
    """

    prefix: str
    formula: Formula
    word: str | None
    symbols: Mapping[str, float]

    def path(self, index: int) -> str:
        """Where the call or gain with this index has its parameters."""
        return f"{self.prefix}.{self.formula.sites[index]}"

    @property
    def sublayers(self) -> tuple[Call, ...]:
        """The calls that run a sublayer."""
        return tuple(call for call in self.formula.calls if call.word in SUBLAYERS)

    def kind(self, call: Call) -> str:
        """The sublayer that a call runs."""
        assert call.word in SUBLAYERS
        return call.word if call.word != STEP else str(self.word)

    def inner(self, call: Call) -> dict[str, str]:
        """What is normalised inside a call's sublayer, and by which word."""
        sites = INNER.get(self.kind(call), ())
        return {part: norm for site, norm in call.inner if site in sites for part in INNER_PARTS[site]}
