"""Which norm of a model stands at which site of the wanted formula; names of parameters stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normula.formula.run import number
from normula.formula.words import NORMS
from normula.rewire.anatomy import Norm
from normula.rewire.wanted import Wanted, site

Origin = Literal["kept", "moved", "copied", "new"]

NEW: Origin = "new"

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
    """A norm of the wanted formula: the place of its step, its index, word and site, its origin, the gain's start."""

    step: int
    index: int
    word: str
    site: str
    origin: Origin
    source: Norm | None
    start: float


def matched(wanted: Wanted) -> tuple[Placed, ...]:
    """The norms of a layer's formula: first those that have their site already, then those of the same sublayer."""
    calls = [
        (place, call, site(step, call.index))
        for place, step in enumerate(wanted.steps)
        for call in step.formula.calls
        if call.word in NORMS
    ]
    norms = _distinct(wanted.layer.norms)
    left = dict(enumerate(norms))
    found: dict[str, tuple[Origin, Norm]] = {}
    for near in (_same_site, _shared_entry, _same_sublayer, _any):
        for _, call, where in calls:
            if where in found:
                continue
            fits = (p for p, one in left.items() if one.kind in KINDS[call.word] and near(one.site, where))
            if (place := next(fits, None)) is not None:
                norm = left.pop(place)
                found[where] = ("kept" if norm.site == where else "moved", norm)
    for _, call, where in calls:
        source = _shared(wanted.layer.norms, norms, where)
        if where not in found and source is not None and source.kind in KINDS[call.word]:
            found[where] = ("copied", source)
    result = []
    for place, call, where in calls:
        origin, source = found.get(where, (NEW, None))
        start = 1.0 if call.start is None else number(call.start, dict(wanted.steps[place].symbols))
        result.append(Placed(place, call.index, call.word, where, origin, source, start))
    return tuple(result)


def _shared(every: tuple[Norm, ...], distinct: tuple[Norm, ...], site: str) -> Norm | None:
    """The norm that stood at a site and at another one too: with parameters used twice, or read by two sublayers."""
    for one in every:
        if _same_sublayer(one.site, site) and one not in distinct:
            return one
        if site.endswith(".norm_in") and one.site == "norm_in":
            return one
    return None


def _distinct(norms: tuple[Norm, ...]) -> tuple[Norm, ...]:
    """One norm for each set of parameters, or module where it has none."""
    seen: dict[tuple[str, ...], Norm] = {}
    for one in norms:
        seen.setdefault(one.parameters or (one.path,), one)
    return tuple(seen.values())


def _same_site(one: str, other: str) -> bool:
    return one == other


def _shared_entry(one: str, other: str) -> bool:
    """Whether a norm that several sublayers read is to be read by one."""
    return one == "norm_in" and other.endswith(".norm_in")


def _same_sublayer(one: str, other: str) -> bool:
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def _any(one: str, other: str) -> bool:
    return True
