"""What enters each norm of a model, token by token: how far its mean is from 0, and whether it varies at all.

A norm divides by sqrt(var + eps), so where a token's features are all the same it multiplies gradients by 1/sqrt(eps).
Where their mean is large against their deviation, the difference of the two is what rounding has left of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from normula.record.flow import Finding, NormFlow
from normula.record.stream import NormSite

LARGE_MEAN: Final = 100.0
"""A mean that is more deviations than this from 0 is warned of: two of float32's seven digits are gone."""

CENTRING: Final = ("layernorm", "groupnorm")
"""Norms that take the mean off."""


def norm_flow(site: NormSite, x: NDArray[Any]) -> NormFlow:
    """What a norm read, of finite tokens."""
    rows = np.moveaxis(x, site.axes, range(-len(site.axes), 0)).reshape(
        -1, math.prod(x.shape[one] for one in site.axes)
    )
    rows = rows[np.isfinite(rows).all(axis=1)]
    still = (rows == (rows[:, :1] if site.name == "layernorm" else 0.0)).all(axis=1)
    moving = rows[~still]
    deviations = moving.std(axis=1)
    offsets = np.abs(moving.mean(axis=1)) / np.where(deviations > 0, deviations, math.inf)
    return NormFlow(
        path=site.path,
        kind=site.name,
        eps=site.eps,
        tokens=len(rows),
        constant=int(still.sum()),
        offset=float(offsets.max(initial=0.0)),
    )


def row_findings(norms: Sequence[NormFlow]) -> Iterator[Finding]:
    """Tokens with a large mean, and tokens that do not vary."""
    far = [one for one in norms if one.offset > LARGE_MEAN]
    if far:
        worst = max(far, key=lambda one: one.offset)
        lost = (
            f"of float32's seven digits {math.log10(worst.offset):.0f} are lost when it is taken off"
            if worst.kind in CENTRING
            else "a norm that does not take it off gives nearly one direction for every token"
        )
        yield Finding(
            kind="large-mean",
            weight="warning",
            text=f"{len(far)} of {len(norms)} norms read tokens whose mean is more than {LARGE_MEAN:.0f} times their "
            f"deviation, {_name(worst)} up to {worst.offset:.0f} times: {lost}. Look for what adds the same to every "
            "feature.",
        )
    still = [one for one in norms if one.constant]
    if still:
        most = max(still, key=lambda one: one.amplification)
        yield Finding(
            kind="constant-rows",
            weight="warning",
            text=f"{len(still)} of {len(norms)} norms read tokens whose features are all the same, {_name(most)} "
            f"{most.constant} of {most.tokens}: the norm gives its bias there, and multiplies their gradient by "
            f"{most.amplification:.3g}, which is 1/sqrt(epsilon). Mask such tokens, or use a larger epsilon.",
        )


def _name(norm: NormFlow) -> str:
    return norm.path or "the model itself"
