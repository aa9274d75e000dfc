"""Which of some candidates weights were trained as: the tensors decide, else the losses, else it is left open.

Losses are compared at equal loudness, as another placement may make all logits larger. One placement is found if its
loss is lower than that of every other at some loudness, and higher at none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from normula.record.evidence import Candidate

SURE: Final = 4.0
"""A difference counts from so many standard errors: by chance, in one of 15,000 comparisons."""

LEAST: Final = 0.1
"""In parts of the lowest loss, up to 0.1 nats of it: a smaller difference is none, however often it is seen."""

FEWEST: Final = 4
"""Sequences of a batch; fewer give no standard error that is worth the name."""


def verdict(tried: list[Candidate], chance: float | None, *, has_batch: bool) -> tuple[str, Any, list[str]]:
    """A formula, what decided, and why."""
    fitting = [one for one in tried if one.fits]
    formulas = list(dict.fromkeys(one.formula for one in fitting))
    if not fitting:
        reasons = [f"{one.name} ({one.formula}) does not fit: {one.why_not}" for one in tried]
        return "", "no", ["the tensors fit no candidate", *reasons]
    refused = [f"not {one.name}: {one.why_not}" for one in tried if not one.fits]
    if len(formulas) == 1 and refused:
        why = f"of {len(tried)} candidates only {fitting[0].name} has all tensors of the file and no other"
        return formulas[0], "tensors", [why, *refused]
    if len(formulas) == 1:
        return (
            "",
            "no",
            ["the tensors fit, and neither a flag nor a rewiring gives another placement that they fit"],
        )
    return _by_loss(fitting, chance, refused, has_batch=has_batch)


def _by_loss(
    fitting: list[Candidate], chance: float | None, refused: list[str], *, has_batch: bool
) -> tuple[str, Any, list[str]]:
    many = f"{len(fitting)} candidates have the same tensors: {', '.join(one.name for one in fitting)}"
    if not has_batch:
        return "", "no", [many, "only a calibration batch can tell them apart; pass batch= (--batch)", *refused]
    if (count := len(fitting[0].losses_nats)) < FEWEST:
        few = f"the batch has {count} sequences; {FEWEST} are needed to know how sure a difference is"
        return "", "no", [many, few, *refused]
    best = min(fitting, key=lambda one: (sum(not _beats(one, other) for other in _rivals(one, fitting)), _lowest(one)))
    row = min(_compared(best), key=_mean)
    if _mean(row) - (chance if chance is not None else np.inf) > -max(LEAST * LEAST, SURE * _error(row)):
        guess = f"the lowest loss, {_mean(row):.3f} nats, is no better than guessing ({chance:.3f})"
        return "", "no", [many, f"{guess}: these weights were not trained on such a batch, or not at all", *refused]
    rivals = _rivals(best, fitting)
    reasons = [_told(best, other) for other in rivals]
    left = [other for other in rivals if not _beats(best, other)]
    if not left:
        return best.formula, "behaviour", [*reasons, many, *refused]
    open_ = " or ".join(dict.fromkeys(one.formula for one in [best, *left]))
    out = [one.name for one in rivals if one not in left]
    ruled = f"{', '.join(out)} can be ruled out, and between {open_} it cannot be told" if out else "it cannot be told"
    why = f"{ruled}: the difference is less than {SURE:g} standard errors, or than a tenth of the loss"
    return "", "no", [why, *reasons, many, *refused]


def _rivals(one: Candidate, fitting: Iterable[Candidate]) -> list[Candidate]:
    return [other for other in fitting if other.formula != one.formula]


def _compared(one: Candidate) -> NDArray[np.float64]:
    """The losses by which candidates are compared: a row of sequences for each loudness."""
    return np.asarray(one.even_nats or [one.losses_nats], np.float64)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if np.isfinite(values).all() else float("inf")


def _lowest(one: Candidate) -> float:
    return min(_mean(row) for row in _compared(one))


def _gaps(one: Candidate, other: Candidate) -> list[float]:
    """How much lower a loss is than another, in parts of what counts, for each loudness."""
    found = []
    for here, there in zip(_compared(one), _compared(other), strict=True):
        if not (np.isfinite(here).all() and np.isfinite(there).all()):
            found.append(0.0 if _mean(here) == _mean(there) else np.sign(_mean(there) - _mean(here)) * np.inf)
            continue
        counts = max(LEAST * min(_mean(here), _mean(there), LEAST), SURE * _error(there - here), 1e-12)
        found.append(float((there - here).mean()) / counts)
    return found


def _beats(one: Candidate, other: Candidate) -> bool:
    """Whether a loss is lower than another at some loudness, and higher at none."""
    gaps = _gaps(one, other)
    return max(gaps) > 1 and min(gaps) > -1


def _told(one: Candidate, other: Candidate) -> str:
    """The losses of two candidates where they differ most."""
    gaps = _gaps(one, other)
    place = max(range(len(gaps)), key=lambda row: abs(gaps[row]))
    here, there = _compared(one)[place], _compared(other)[place]
    even = " at the same loudness" if one.even_nats else ""
    return (
        f"{one.name} has a loss of {_mean(here):.3f} nats and {other.name} of {_mean(there):.3f}{even}: "
        f"a difference of {(there - here).mean():.3f} +- {_error(there - here):.3f} over {len(here)} sequences"
    )


def _error(values: Any) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
