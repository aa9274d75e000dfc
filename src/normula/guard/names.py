"""Whether a checkpoint's tensors are a model's, told by site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any, Final

from normula.guard.differences import listed
from normula.record.stamp import StampedNorm, StampedStage

SITES: Final = {
    "embed": "before the first block",
    "final": "after block {last}, before the head",
    "attn.norm_in": "before attention",
    "mlp.norm_in": "before the MLP",
    "cross.norm_in": "before cross-attention",
    "attn.norm_out": "on attention's output",
    "mlp.norm_out": "on the MLP's output",
    "attn.norm_sum": "on the sum after attention",
    "mlp.norm_sum": "on the sum after the MLP",
}

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How two lists of tensors differ.

    Attributes:
        missing: tensors of the model that the checkpoint lacks.
        unexpected: tensors of the checkpoint that the model lacks.
        shapes: tensors of other shapes, in words.
        allowed: missing ones that a pattern lets through.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether nothing is wrong but what was allowed."""
        return not (self.missing or self.unexpected or self.shapes)


def compared(
    own: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...]],
    *,
    optional: Collection[str] = (),
    allow_missing: Sequence[str] = (),
) -> Names:
    """Compare names and shapes.

    Args:
        own: shapes of the model's tensors.
        given: shapes of the checkpoint's.
        optional: names that may be missing on either side: buffers, and what is the same tensor as another.
        allow_missing: patterns of names that may be missing, as a shell has them.

    Raises:
        ValueError: a pattern that matches nothing that is missing; it would have no effect.
    """
    missing = [name for name in own if name not in given and name not in optional]
    allowed = [name for name in missing if any(fnmatchcase(name, one) for one in allow_missing)]
    for one in allow_missing:
        if not any(fnmatchcase(name, one) for name in missing):
            raise ValueError(
                f"allow-missing {one!r} matches nothing that is missing, which is: {listed(missing) or 'nothing'}"
            )
    return Names(
        missing=tuple(name for name in missing if name not in allowed),
        unexpected=tuple(name for name in given if name not in own and name not in optional),
        shapes=tuple(
            f"{name} has the shape {list(given[name])}, here it is {list(own[name])}"
            for name in own
            if name in given and given[name] != own[name]
        ),
        allowed=tuple(allowed),
    )


def under_names_of(there: Any, own: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The file's tensors under a model's names; one that the file has under another of its names is there too."""
    plain = there.plain_names(list(tensors), list(own))
    given = {plain[name]: tensor for name, tensor in tensors.items()}
    for alias, kept in there.tied(own).items():
        if alias not in given and kept in given:
            given[alias] = given[kept]
        elif kept not in given and alias in given:
            given[kept] = given[alias]
    return given


def said(
    names: Names, saved: Sequence[StampedNorm], here: Sequence[StampedNorm], stages: Sequence[StampedStage]
) -> str:
    """What is wrong with the names, in one line, each with the site it belongs to."""
    known = {name: norm for norm in (*saved, *here) for name in norm.parameters}
    parts = []
    if names.missing:
        parts.append(f"missing from the checkpoint (fatal): {_sites(names.missing, known, stages)}")
    if names.unexpected:
        words = _sites(names.unexpected, known, stages)
        parts.append(f"unexpected (fatal), present and never used in this model's forward: {words}")
    if names.shapes:
        parts.append(listed(names.shapes, 3))
    return ". ".join(parts)


def _sites(names: Iterable[str], norms: Mapping[str, StampedNorm], stages: Sequence[StampedStage]) -> str:
    """Names with the numbers of their layers left open, each with its site and how often it comes."""
    counts: dict[tuple[str, str], list[str]] = {}
    for name in names:
        counts.setdefault((_NUMBER.sub("*", name), site_of(name, norms, stages)), []).append(name)
    words = [
        (same[0] if len(same) == 1 else f"{name} ({len(same)} times)") + (f", {site}" if site else "")
        for (name, site), same in counts.items()
    ]
    return listed(words, 6)


def site_of(name: str, norms: Mapping[str, StampedNorm], stages: Sequence[StampedStage]) -> str:
    """Where a tensor stands, in words; empty for one that is no norm's."""
    if name not in norms:
        return ""
    site = norms[name].site
    return SITES.get(site, site).format(last=last_block(name, stages))


def last_block(name: str, stages: Sequence[StampedStage]) -> int:
    """The number of the last block of the stack that a tensor stands beside, from 0 as paths count them."""
    if not stages:
        return 0
    beside = max(stages, key=lambda stage: _shared(name.split("."), stage.where.split(".")))
    return sum(stage.layers for stage in stages if stage.where == beside.where) - 1


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts two paths begin with together."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
