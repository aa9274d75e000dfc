"""Checking a checkpoint that carries no formula: what its tensors and its behaviour say of how it was trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from normula.framework import room
from normula.guard.candidates import Opening, flagged, rewired
from normula.guard.names import compared, said, under_names_of
from normula.guard.saving import stamp_in
from normula.guard.stamping import Example, arguments, digest, guarded, line, look, norms_of, stages_of
from normula.guard.verdict import verdict
from normula.read import framework_to_read
from normula.record.checkpoint import open_checkpoint
from normula.record.evidence import Candidate, Evidence, Gain
from normula.record.stamp import StampedNorm, StampedStage


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

    The model is tried as it is and with every flag that speaks of norms or residuals the other way round; where that
    gives no other placement, as copies that are rewired: whether the file's tensors fit, and what loss each has with
    them on a calibration batch. Nothing is loaded.

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
    found, there, variants = open_checkpoint(path), guarded(model), room("torch").variants
    args, kwargs = arguments(example)
    if not args and not kwargs:
        args, kwargs = there.example_of(model)
    batch = None if batch is None else variants.as_batch(batch, model)
    trial = Trial(there.tensors_in(found), args, kwargs, batch, loss)
    for name, opening in flagged(model, others):
        trial.add(name, opening)
    if len({one.formula for one in trial.tried}) == 1:
        flags = len(trial.tried)
        for name, opening in rewired(there.bare(model), trial.stages, args, kwargs):
            trial.add(name, opening)
        trial.tried[flags:] = [one for one in trial.tried[flags:] if one.fits]  # one that does not fit excludes nothing
    formula, sure, reasons = verdict(trial.tried, trial.chance, has_batch=batch is not None)
    if (stamp := stamp_in(found)) is not None:
        formula, sure, reasons = stamp.formula, "stamp", [f"the file carries its formula: {stamp.formula}", *reasons]
    gains = tuple(_gains(there, trial.tensors, trial.norms))
    return Evidence(
        where=found.where,
        formula=formula,
        sure=sure,
        reasons=(*reasons, *_of_gains(gains), *trial.notes),
        candidates=tuple(trial.tried),
        gains=gains,
        chance_nats=trial.chance,
    )


@dataclass(slots=True)
class Trial:
    """One candidate after another, with the same tensors and the same batch.

    Attributes:
        tensors: of the file.
        args, kwargs: of the forward that is read.
        batch, loss: what each candidate that fits is measured with.
        tried: the candidates, each with another program.
        stages: of the first, which is the model as it is.
        norms: of all of them.
        notes: on those that could not be tried.
        chance: the loss of a model that guesses.
    """

    tensors: Mapping[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batch: Mapping[str, Any] | None
    loss: Callable[[Any], Any] | None
    tried: list[Candidate] = field(default_factory=list)
    stages: tuple[StampedStage, ...] = ()
    norms: list[StampedNorm] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chance: float | None = None
    programs: set[str] = field(default_factory=set)

    def add(self, name: str, opening: Opening) -> None:
        """Try one; the first must run, a flag may make a model that does not."""
        try:
            with opening() as variant:
                self._add(name, variant)
        except Exception as error:
            if not self.tried:
                raise
            said = (str(error).strip().splitlines() or [""])[0]
            self.notes.append(f"{name} could not be tried ({type(error).__name__}: {said[:120]})")

    def _add(self, name: str, variant: Any) -> None:
        there = guarded(variant)
        program = digest(room("torch").capture(there.bare(variant), self.args, self.kwargs), there.plain_name)
        if program in self.programs:
            return  # this flag changes nothing
        self.programs.add(program)
        looked = look(variant, self.args, self.kwargs)
        stages, norms = stages_of(looked.reading), norms_of(looked)
        self.norms += norms
        self.stages = self.stages or stages
        own, buffers = there.tensors_of(variant)
        given = under_names_of(there, own, self.tensors)
        shapes = [{one: there.shape_of(tensor) for one, tensor in tensors.items()} for tensors in (own, given)]
        names = compared(*shapes, optional=buffers)
        own, even = self._losses(there, variant, given) if names.fit else ((), ())
        self.tried.append(
            Candidate(
                name=name,
                formula=line(stages),
                fits=names.fit,
                why_not=said(names, (), self.norms, stages),
                losses_nats=own,
                even_nats=even,
            )
        )

    def _losses(
        self, there: Any, variant: Any, given: Mapping[str, Any]
    ) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
        if self.batch is None:
            return (), ()
        with there.holding(variant, (), given):
            found = room("torch").variants.losses(there.bare(variant), self.batch, self.loss)
        self.chance = found.chance
        rows = tuple(tuple(float(one) for one in row) for row in found.even)
        return tuple(float(one) for one in found.own), rows


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
