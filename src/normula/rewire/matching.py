"""Which norm of a model stands at which site of the wanted formula; names of parameters stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normula.formula.run import number
from normula.formula.words import NORMS
from normula.rewire.anatomy import Norm
from normula.rewire.wanted import Wanted

Origin = Literal["kept", "moved", "copied", "new"]

KINDS = {
    "layernorm": ("LayerNorm",),
    "rmsnorm": ("RMSNorm",),
    "l2norm": ("L2Norm",),
    "dyt": ("DyT",),
    "derf": ("Derf",),
    "norm": ("LayerNorm", "RMSNorm", "GroupNorm", "L2Norm"),
}
"""The kinds of norms that may stand where a formula has a word."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A norm of the wanted formula: its index, word and site, where it comes from, and the start of its gain."""

    index: int
    word: str
    site: str
    origin: Origin
    source: Norm | None
    start: float


def matched(wanted: Wanted) -> tuple[Placed, ...]:
    """The norms of a layer's formula: first those that have their site already, then those of the same sublayer."""
    formula = wanted.formula
    calls = [call for call in formula.calls if call.word in NORMS]
    norms = _distinct(wanted.layer.norms)
    left = dict(enumerate(norms))
    found: dict[int, tuple[Origin, Norm]] = {}
    for near in (_same_site, _same_sublayer, _any):
        for call in calls:
            if call.index in found:
                continue
            site = formula.sites[call.index]
            place = next((p for p, one in left.items() if one.kind in KINDS[call.word] and near(one.site, site)), None)
            if place is not None:
                norm = left.pop(place)
                found[call.index] = ("kept" if norm.site == site else "moved", norm)
    shared = {one.site: one for one in wanted.layer.norms if one not in norms}
    for call in calls:
        site = formula.sites[call.index]
        if call.index not in found and site in shared and shared[site].kind in KINDS[call.word]:
            found[call.index] = ("copied", shared[site])
    result = []
    for call in calls:
        origin, source = found.get(call.index, ("new", None))
        start = 1.0 if call.start is None else number(call.start, dict(wanted.symbols))
        result.append(Placed(call.index, call.word, formula.sites[call.index], origin, source, start))
    return tuple(result)


def _distinct(norms: tuple[Norm, ...]) -> tuple[Norm, ...]:
    """One norm for each set of parameters, or module where it has none."""
    seen: dict[tuple[str, ...], Norm] = {}
    for one in norms:
        seen.setdefault(one.parameters or (one.path,), one)
    return tuple(seen.values())


def _same_site(one: str, other: str) -> bool:
    return one == other


def _same_sublayer(one: str, other: str) -> bool:
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def _any(one: str, other: str) -> bool:
    return True
