"""A checkpoint of a model's part, such as the body of a model with a head, or of a whole that the model is a part of.

The names say so: those of the one are those of the other with a prefix, as transformers has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from normula.guard.differences import listed
from normula.record.stamp import Fingerprint, Stamp


@dataclass(frozen=True, slots=True)
class Part:
    """What of a model is held against what of a checkpoint.

    Attributes:
        model: the module that the checkpoint is of.
        saved: the stamp, of that module alone.
        prefix: of the names in the checkpoint that are the module's; empty for all of them.
        beside: the shapes of the model's tensors that are no part of the module.
        tied: names of the whole checkpoint that are the same tensor as another.
        note: how the two are related, if they are not the same.
    """

    model: Any
    saved: Stamp
    prefix: str = ""
    beside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def tensors(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of a checkpoint that are the module's, under its names."""
        same = {alias: given[kept] for alias, kept in self.tied.items() if kept in given}
        return _stripped({**same, **given}, self.prefix)


def part_of(model: Any, saved: Stamp, names: Collection[str], there: Any, args: Any) -> Part:
    """The module that a checkpoint with these names is of: the model, a module in it, or the model as part of more."""
    own, buffers = there.tensors_of(model, args)
    plain = set(there.plain_names(list(names), list(own)).values())
    if prefix := body_of(own, plain):
        body = there.bare(model).get_submodule(prefix)
        same = there.tied(own)
        held = {name for name in own if name.startswith(f"{prefix}.")}
        held |= {name for alias, kept in same.items() for name in (alias, kept) if {alias, kept} & held}
        beside = {name: there.shape_of(one) for name, one in own.items() if name not in held | buffers}
        return Part(body, saved, beside=beside, note=f"it was saved from what this model holds as {prefix!r}")
    if prefix := body_of(plain, own):
        left = sorted(name for name in plain if not name.startswith(f"{prefix}."))
        note = f"it was saved from a model that holds this one as {prefix!r}; left out: {listed(left) or 'nothing'}"
        return Part(model, _part(saved, prefix), prefix=f"{prefix}.", tied=saved.tied, note=note)
    return Part(model, saved)


def body_of(whole: Iterable[str], part: Collection[str]) -> str:
    """The prefix under which most names of a part are names of a whole, if without one fewer are."""
    whole = set(whole)
    counts = {"": sum(name in whole for name in part)}
    for prefix in dict.fromkeys(name.split(".")[0] for name in whole if "." in name):
        counts[prefix] = sum(f"{prefix}.{name}" in whole for name in part)
    best = max(counts, key=lambda one: counts[one])
    return best if 2 * counts[best] > len(part) and counts[best] > counts[""] else ""


def _part(saved: Stamp, prefix: str) -> Stamp:
    """What a stamp says of one module."""
    before = f"{prefix}."
    norms = tuple(
        replace(
            one,
            path=one.path.removeprefix(before),
            parameters=tuple(name.removeprefix(before) for name in one.parameters),
        )
        for one in saved.norms
        if any(name.startswith(before) for name in (one.path, *one.parameters))
    )
    sites = {one.site for one in norms}
    return replace(
        saved,
        stages=tuple(
            replace(
                one,
                where=one.where.removeprefix(before),
                embed_norm=one.embed_norm and "embed" in sites,
                final_norm=one.final_norm and "final" in sites,
            )
            for one in saved.stages
        ),
        norms=norms,
        fingerprint=None if saved.fingerprint is None else _without_outputs(saved.fingerprint, before),
        samples=_stripped(saved.samples, before),
        unsaved=_stripped(saved.unsaved, before),
        tied=_stripped({alias: kept.removeprefix(before) for alias, kept in saved.tied.items()}, before),
        buffers=tuple(_stripped(dict.fromkeys(saved.buffers), before)),
        unused=tuple(_stripped(dict.fromkeys(saved.unused), before)),
    )


def _without_outputs(finger: Fingerprint, before: str) -> Fingerprint:
    """The streams inside a module; what comes out of the whole is not what comes out of it."""
    sites = []
    for site in finger.sites:
        *place, path = site.name.split(":", 2)
        sites.append(replace(site, name=":".join((*place, path.removeprefix(before)))))
    return replace(finger, program="", shapes="", sites=tuple(sites), outputs=())


def _stripped(names: Mapping[str, Any], before: str) -> dict[str, Any]:
    return {name.removeprefix(before): one for name, one in names.items() if name.startswith(before)}
