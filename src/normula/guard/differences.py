"""What is different between what a checkpoint knows and a model: by site, in words, none where they agree.

Formulas are compared stage by stage; norms by the names of their parameters, so that a gain that now stands somewhere
else is found; behaviour by the stream after each layer and by the output, within what the narrowest dtype allows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from normula.guard.stamping import narrowest
from normula.record.reading import UNKNOWN
from normula.record.stamp import Fingerprint, Output, Site, Stamp, StampedNorm, StampedStage

TOLERANCE: Final = {
    "F64": 1e-6,
    "F32": 2e-4,
    "TF32": 1e-2,
    "F16": 2e-2,
    "BF16": 1e-1,
    "F8_E4M3": 0.5,
    "F8_E5M2": 0.5,
}
"""How far values may differ, in parts of their RMS: about 1000 roundings of the dtype; for the narrow ones 25, as less
than that would tell nothing. Two machines, devices and orders of summation stay inside."""

EPS: Final = 0.01
"""How far, in parts, an epsilon may be off: it is read from numbers that may have been rounded to bfloat16."""

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")

MOST: Final = 4
"""Sites that a message names; it says how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One site that differs: what was saved, and what is here."""

    site: str
    saved: str
    here: str

    def __str__(self) -> str:
        return f"{self.site}: {self.saved} against {self.here}"


def in_formula(saved: Stamp, here: Stamp) -> list[Difference]:
    """Where two models normalise otherwise."""
    found = list(_of_stages(saved.stages, here.stages))
    return found + _of_norms(saved.norms, here.norms)


def in_behaviour(saved: Fingerprint, here: Fingerprint) -> list[Difference]:
    """Where two models do something else with the same input: the first site, and the output."""
    tolerance = TOLERANCE[narrowest([saved.dtype, here.dtype])]
    found: list[Difference] = []
    there = {site.name: site for site in here.sites}
    for site in saved.sites:
        if site.name in there and (worst := _apart(site, there[site.name])) > tolerance:
            _, layer, path = site.name.split(":", 2)
            found.append(_off(f"the stream after layer {layer} ({path})", site, there[site.name], worst, tolerance))
            break
    return found + list(_of_outputs(saved, here, tolerance))


def _of_outputs(saved: Fingerprint, here: Fingerprint, tolerance: float) -> Iterator[Difference]:
    if not saved.outputs:
        return  # of a part of what was saved, nothing is known but its streams
    if [one.shape for one in saved.outputs] != [one.shape for one in here.outputs]:
        shapes = (" ".join(str(list(one.shape)) for one in finger.outputs) or "none" for finger in (saved, here))
        yield Difference(site="the output's shapes", saved=next(shapes), here=next(shapes))
        return
    for one, other in zip(saved.outputs, here.outputs, strict=True):
        if (worst := _apart(one, other)) > tolerance:
            yield _off("the output", one, other, worst, tolerance)
            return


def _apart(one: Site | Output, other: Site | Output) -> float:
    """How far two values are from each other, in parts of the first one's RMS."""
    pairs = [(one.rms, other.rms), *zip(one.sums, other.sums, strict=False)]
    return max(abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf for a, b in pairs) / max(
        one.rms, 1e-30
    )


def _off(where: str, one: Site | Output, other: Site | Output, worst: float, tolerance: float) -> Difference:
    off = f"off by {worst:.2g} of it, {tolerance:.2g} is allowed"
    return Difference(site=where, saved=f"RMS {one.rms:.4g}", here=f"{other.rms:.4g} ({off})")


def changed(saved: Stamp, samples: Mapping[str, Sequence[float]], dtype: str) -> list[str]:
    """The tensors that are not what they were, as far as some of their numbers tell."""
    tolerance = TOLERANCE[dtype]
    return [name for name, one in saved.samples.items() if name in samples and not _same(one, samples[name], tolerance)]


def swapped(saved: Stamp, samples: Mapping[str, Sequence[float]], names: Sequence[str], dtype: str) -> list[str]:
    """Among tensors that changed, those that hold what another of them should: `a holds what b held`."""
    tolerance = TOLERANCE[dtype]
    return [
        f"{name} holds what {other} held"
        for name in names
        for other in names
        if other != name and _same(saved.samples[other], samples[name], tolerance)
    ]


def _same(saved: Sequence[float], here: Sequence[float], tolerance: float) -> bool:
    if len(saved) != 2 or len(here) != 2:
        return len(saved) == len(here)
    scale = max(abs(saved[1]), 1e-30)
    return all(_near(a, b, scale, tolerance / 4) for a, b in zip(saved, here, strict=True))


def _near(a: float, b: float, scale: float, tolerance: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return repr(a) == repr(b)
    return abs(a - b) <= tolerance * scale


def _of_stages(saved: Sequence[StampedStage], here: Sequence[StampedStage]) -> Iterator[Difference]:
    if sum(one.layers for one in saved) != sum(one.layers for one in here):
        counts = (" + ".join(str(one.layers) for one in stages) or "0" for stages in (saved, here))
        yield Difference(site="layers", saved=next(counts), here=next(counts))
        return
    pairs = list(zip(_layers(saved), _layers(here), strict=True))
    runs: list[list[int]] = []
    for place, (one, other) in enumerate(pairs):
        if UNKNOWN in (one.block, other.block) or _block(one) == _block(other):
            continue
        before = runs[-1][-1] if runs else -2
        if before == place - 1 and (_block(pairs[before][0]), _block(pairs[before][1])) == (_block(one), _block(other)):
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        one, other = pairs[run[0]]
        many = f"layers {run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else f"layer {run[0] + 1}"
        yield Difference(site=f"{many} ({other.where})" if other.where else many, saved=_block(one), here=_block(other))
    yield from _of_ends(saved, here)


def _of_ends(saved: Sequence[StampedStage], here: Sequence[StampedStage]) -> Iterator[Difference]:
    for site, attribute in (("before the stack", "embed_norm"), ("after the stack", "final_norm")):
        ends = [_ends(stages, attribute) for stages in (saved, here)]
        for place in sorted(ends[0] ^ ends[1]):
            said = ("a norm" if place in ends[0] else "no norm", "none" if place in ends[0] else "one")
            yield Difference(site=f"{site} (at layer {place})", saved=said[0], here=said[1])


def _ends(stages: Sequence[StampedStage], attribute: str) -> set[int]:
    """The layers, from 1, that a norm stands before or after."""
    found: set[int] = set()
    first = 1
    for stage in stages:
        last = first + stage.layers - 1
        if getattr(stage, attribute):
            found.add(first if attribute == "embed_norm" else last)
        first = last + 1
    return found


def _layers(stages: Sequence[StampedStage]) -> list[StampedStage]:
    return [stage for stage in stages for _ in range(stage.layers)]


def _block(stage: StampedStage) -> str:
    return "; ".join(
        [stage.block, *(f"from {one}" for one in stage.streams), *([stage.closing] if stage.closing else [])]
    )


def _of_norms(saved: Sequence[StampedNorm], here: Sequence[StampedNorm]) -> list[Difference]:
    """Norms with the same parameters that stand elsewhere or compute something else, and those that only one has."""
    own = {_identity(norm): norm for norm in here}
    found: dict[tuple[str, str, str], int] = {}
    for norm in saved:
        other = own.pop(_identity(norm), None)
        for what, one, two in _pairs(norm, other):
            key = (f"{_starred(norm.path or norm.site)}{what}", one, two)
            found[key] = found.get(key, 0) + 1
    for norm in own.values():
        key = (_starred(norm.path or norm.site), "no norm", f"{norm.kind} at {_place(norm)}")
        found[key] = found.get(key, 0) + 1
    return [
        Difference(site=site + (f" ({count} of them)" if count > 1 else ""), saved=one, here=two)
        for (site, one, two), count in found.items()
    ]


def _pairs(norm: StampedNorm, other: StampedNorm | None) -> Iterator[tuple[str, str, str]]:
    if other is None:
        yield "", f"{norm.kind} at {_place(norm)}", "no such norm"
        return
    if norm.kind != other.kind:
        yield "", norm.kind, other.kind
    if _place(norm) != _place(other):
        yield "", _place(norm), _place(other)
    if norm.axes != other.axes:
        yield "'s axes", str(list(norm.axes)), str(list(other.axes))
    if abs(norm.eps - other.eps) > EPS * max(norm.eps, other.eps):
        yield "'s eps", f"{norm.eps:.3g}", f"{other.eps:.3g}"
    if norm.rounded and other.rounded and norm.rounded != other.rounded:
        yield "", f"rounded {norm.rounded}", f"rounded {other.rounded}"


def _identity(norm: StampedNorm) -> Any:
    return norm.parameters[:1] or (norm.path, norm.site, norm.layers)


def _place(norm: StampedNorm) -> str:
    return {"embed": "before the stack", "final": "after the stack"}.get(norm.site, norm.site)


def _starred(name: str) -> str:
    """A path with the numbers of its layers left open."""
    return _NUMBER.sub("*", name) or "the model"


def listed(words: Sequence[Any], most: int = MOST) -> str:
    """Some words in one line, and how many more there are."""
    more = f"; and {len(words) - most} more" if len(words) > most else ""
    return "; ".join(str(one) for one in words[:most]) + more
