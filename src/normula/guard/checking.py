"""Checking a checkpoint that carries no formula: what its tensors and its behaviour say of how it was trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from normula.framework import room
from normula.guard.names import compared, said, under_names_of
from normula.guard.saving import stamp_in
from normula.guard.stamping import Example, arguments, digest, guarded, line, look, norms_of, stages_of
from normula.read import framework_to_read
from normula.record.checkpoint import open_checkpoint
from normula.record.evidence import Candidate, Evidence, Gain
from normula.record.stamp import StampedNorm

SURE: Final = 4.0
"""A difference counts from so many standard errors: by chance, in one of 15,000 comparisons."""

LEAST: Final = 0.01
"""In nats: less is no difference, however often it is seen."""

FEWEST: Final = 4
"""Sequences of a batch; fewer give no standard error that is worth the name."""

Opening = Callable[[], AbstractContextManager[Any]]


def check(
    path: str | os.PathLike[str],
    model: Any,
    example: Example = None,
    *,
    batch: Mapping[str, Any] | None = None,
    loss: Callable[[Any], Any] | None = None,
    others: Mapping[str, Any] | None = None,
) -> Evidence:
    """Find out which placement a checkpoint was trained with, or that this cannot be told.

    The model is tried as it is and with every flag that speaks of norms or residuals the other way round: whether
    the file's tensors fit, and what loss each has with them on a calibration batch. Nothing is loaded.

    Args:
        path: a file, an index or a folder.
        model: a PyTorch module of the architecture that the weights are for.
        example: arguments of its forward; None where they can be guessed.
        batch: inputs by name, of what the model was trained on; `labels` where it predicts no next token. A few
            sequences do; without them, only tensors decide.
        loss: from the model's output to its loss: one number for each sequence, or one.
        others: more candidates: modules by a name.

    Returns:
        A verdict, how sure it is, and all that was tried.

    Raises:
        ValueError: the model cannot be read, or the file is damaged.
    """
    if framework_to_read(model, ()) != "torch":
        raise ValueError("Only models of PyTorch have flags to try. For JAX, load under each of your own models")
    found = open_checkpoint(path)
    there, variants = guarded(model), room("torch").variants
    args, kwargs = arguments(example)
    if not args and not kwargs:
        args, kwargs = there.example_of(model)
    tensors = there.tensors_in(found)
    batch = None if batch is None else variants.as_batch(batch, model)
    tried: list[Candidate] = []
    norms: list[StampedNorm] = []
    digests: set[str] = set()
    notes: list[str] = []
    chances: list[float] = []
    for name, opening in _openings(variants.variants(model), others):
        try:
            with opening() as variant:
                looked = look(variant, args, kwargs)
                program = digest(room("torch").capture(there.bare(variant), args, kwargs))
                if program in digests:
                    continue  # this flag changes nothing
                digests.add(program)
                stages, stamped = stages_of(looked.reading), norms_of(looked.reading)
                norms += stamped
                own, buffers = there.tensors_of(variant)
                given = under_names_of(there, own, tensors)
                names = compared(
                    {one: there.shape_of(tensor) for one, tensor in own.items()},
                    {one: there.shape_of(tensor) for one, tensor in given.items()},
                    optional=buffers,
                )
                measured: tuple[float, ...] = ()
                if names.fit and batch is not None:
                    with there.holding(variant, (), given):
                        each, chance = variants.losses(there.bare(variant), batch, loss)
                    measured = tuple(float(one) for one in each)
                    chances += [] if chance is None else [chance]
                tried.append(
                    Candidate(
                        name=name,
                        formula=line(stages),
                        fits=names.fit,
                        why_not=said(names, (), stamped, stages),
                        losses_nats=measured,
                    )
                )
        except Exception as error:  # a flag may make a model that cannot be made or run
            if name == "as it is":
                raise
            notes.append(f"{name} could not be tried ({type(error).__name__}: {str(error).splitlines()[:1]})")
    chance = chances[0] if chances else None
    formula, sure, reasons = _verdict(tried, chance, has_batch=batch is not None)
    stamp = stamp_in(found)
    if stamp is not None:
        formula, sure, reasons = stamp.formula, "stamp", [f"the file carries its formula: {stamp.formula}", *reasons]
    gains = tuple(_gains(there, tensors, norms))
    return Evidence(
        where=found.where,
        formula=formula,
        sure=sure,
        reasons=tuple([*reasons, *_of_gains(gains), *notes]),
        candidates=tuple(tried),
        gains=gains,
        chance_nats=chance,
    )


def _openings(found: Iterable[tuple[str, Opening]], others: Mapping[str, Any] | None) -> list[tuple[str, Opening]]:
    from contextlib import nullcontext

    return [*found, *((name, lambda one=one: nullcontext(one)) for name, one in (others or {}).items())]


def _verdict(tried: list[Candidate], chance: float | None, *, has_batch: bool) -> tuple[str, Any, list[str]]:
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
        return "", "no", ["the tensors fit, and no flag of the model gives another placement to compare it with"]
    return _by_loss(fitting, chance, refused, has_batch=has_batch)


def _by_loss(
    fitting: list[Candidate], chance: float | None, refused: list[str], *, has_batch: bool
) -> tuple[str, Any, list[str]]:
    many = f"{len(fitting)} candidates have the same tensors: {', '.join(one.name for one in fitting)}"
    if not has_batch:
        return "", "no", [many, "only a calibration batch can tell them apart; pass batch= (--batch)", *refused]
    ranked = sorted(fitting, key=lambda one: np.inf if one.loss_nats is None else one.loss_nats)
    best = ranked[0]
    rest = [one for one in ranked if one.formula != best.formula]
    if best.loss_nats is None or len(best.losses_nats) < FEWEST:
        few = f"the batch has {len(best.losses_nats)} sequences; {FEWEST} are needed to know how sure a difference is"
        return "", "no", [many, few, *refused]
    above = best.loss_nats - (chance if chance is not None else np.inf)
    if above > -max(LEAST, SURE * _error(np.asarray(best.losses_nats))):
        guess = f"the lowest loss, {best.loss_nats:.3f} nats, is no better than guessing ({chance:.3f})"
        return "", "no", [many, f"{guess}: these weights were not trained on such a batch, or not at all", *refused]
    reasons, sure = [], True
    for other in rest:
        gap = np.asarray(other.losses_nats) - np.asarray(best.losses_nats)
        error = _error(gap)
        reasons.append(
            f"{best.name} has a loss of {best.loss_nats:.3f} nats and {other.name} of {other.loss_nats:.3f}: "
            f"a difference of {gap.mean():.3f} +- {error:.3f} over {len(gap)} sequences"
        )
        sure = sure and bool(gap.mean() > max(LEAST, SURE * error))
    if not sure:
        return "", "no", [many, *reasons, f"that is less than {SURE:g} standard errors, so it cannot be told", *refused]
    return best.formula, "behaviour", [*reasons, many, *refused]


def _error(values: Any) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def _gains(there: Any, tensors: Mapping[str, Any], norms: list[StampedNorm]) -> Iterable[Gain]:
    plain = {one: name for name, one in there.plain_names(list(tensors), []).items()}
    seen: set[str] = set()
    for norm in norms:
        held = [plain[name] for name in norm.parameters if name in plain]
        if not held or held[0] in seen:
            continue
        seen.add(held[0])
        gain, *bias = (np.asarray(there.sample(tensors[name])) for name in held)
        yield Gain(
            name=held[0],
            site=norm.site,
            mean=float(gain.mean()),
            deviation=float(gain.std()),
            bias_rms=float(np.sqrt(np.mean(bias[0] ** 2))) if bias and bias[0].size else 0.0,
        )


def _of_gains(gains: tuple[Gain, ...]) -> list[str]:
    """What gains alone say: those that never moved were not trained, or not used."""
    fresh = [one for one in gains if one.deviation == 0 and one.mean in (0.0, 1.0) and one.bias_rms == 0]
    if not fresh:
        return []
    if len(fresh) == len(gains):
        return [f"all {len(gains)} norms are as they start: gains of 1, biases of 0; the weights may be untrained"]
    names = ", ".join(one.name for one in fresh[:3])
    return [f"{len(fresh)} of {len(gains)} norms are as they start and the others are not: {names}; were they used?"]
