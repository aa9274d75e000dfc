"""The one question that loading, verifying and the hooks ask: may these tensors go into this model?"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from normula.guard.differences import Difference, changed, in_behaviour, in_formula, listed, swapped
from normula.guard.names import Names, compared, said
from normula.guard.parts import Part, body_of, part_of
from normula.guard.stamping import (
    Example,
    Looked,
    arguments,
    digest,
    fingerprint,
    guarded,
    inputs_of,
    line,
    look,
    narrowest,
    norms_of,
    stages_of,
    summed,
    unused_in,
)
from normula.record.program import Program
from normula.record.stamp import Fingerprint, Stamp, StampedNorm
from normula.record.tensorfile import WeightsError

LET_THROUGH = "Pass allow=True (--allow) to take it all the same"


@dataclass(slots=True)
class Asked:
    """A model, the stamp that it is held against, and the arguments of its forward.

    Attributes:
        given: the tensors that should go into it; None for those that it has.
        there: the room's side of guarding.
        part: how the model and the checkpoint belong together.
        own: the model's tensors by name, and which of them are buffers.
        narrow: the narrowest dtype in the file.
    """

    model: Any
    saved: Stamp
    where: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    there: Any
    part: Part
    own: tuple[dict[str, Any], frozenset[str]]
    given: dict[str, Any] | None = None
    narrow: str | None = None
    names: Names = field(default_factory=Names)

    @property
    def is_whole(self) -> bool:
        """Whether no tensor of what is compared was allowed to be missing."""
        return not any(name in self.own[0] for name in self.names.allowed)


@dataclass(slots=True)
class Answer:
    """What is wrong, in sentences; what should be known."""

    formula: list[str] = field(default_factory=list)
    behaviour: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def refusals(self) -> list[str]:
        return [*self.formula, *self.behaviour, *self.names]


def asked(model: Any, saved: Stamp, where: str, example: Example, names: Collection[str] = ()) -> Asked:
    """A model and a stamp with the arguments that the stamp was made with.

    Args:
        names: of the checkpoint's tensors, where it may be of a part of the model, or the model of a part of it.

    Raises:
        ValueError: the stamp holds none, and none were given.
    """
    args, kwargs = arguments(example)
    there = guarded(model, (args, kwargs))
    part = part_of(model, saved, names, there, args)
    model, saved = part.model, part.saved
    if saved.inputs is not None:
        args, kwargs = inputs_of(saved.inputs, model, there, args)
    elif not args and not kwargs:
        raise ValueError(f"the arguments that {where} was saved with could not be written; pass the same as example=")
    return Asked(model, saved, where, args, kwargs, there, part, there.tensors_of(model, args))


def with_tensors(one: Asked, given: Mapping[str, Any], allow_missing: Sequence[str]) -> Asked:
    """The same with tensors that should go in, under the model's names."""
    there, saved = one.there, one.saved
    own, buffers = one.own
    plain = there.plain_names(list(given), list(own))
    tensors = one.part.tensors({plain[name]: tensor for name, tensor in given.items()})
    same = there.tied(own)
    for alias, kept in saved.tied.items():
        if alias in own and alias not in tensors and kept in tensors:
            tensors[alias] = tensors[kept]
    for alias, kept in same.items():  # other programs may have kept the other name
        if kept not in tensors and alias in tensors:
            tensors[kept] = tensors[alias]
        elif alias not in tensors and kept in tensors:
            tensors[alias] = tensors[kept]
    one.names = compared(
        {**one.part.beside, **{name: there.shape_of(tensor) for name, tensor in own.items()}},
        {name: there.shape_of(tensor) for name, tensor in tensors.items()},
        optional=buffers | set(saved.buffers),
        allow_missing=allow_missing,
    )
    fitting = {name: tensor for name, tensor in tensors.items() if name in own}
    one.given = {name: one for name, one in fitting.items() if there.shape_of(one) == there.shape_of(own[name])}
    one.narrow = narrowest([there.dtype_of(tensor) for tensor in tensors.values()])
    return one


def answered(one: Asked) -> Answer:
    """All that is wrong. The model is as it was afterwards.

    Where the same operators run on the same numbers, nothing more is asked.
    """
    answer = Answer(notes=[one.part.note] if one.part.note else [])
    if one.names.fit and _is_the_same(one, answer):
        return answer
    if words := _of_prefix(one.names):
        answer.lacking.append(words)
        return answer
    try:
        looked = look(one.model, one.args, one.kwargs)
    except Exception as error:  # whatever a forward raises on the inputs of another model
        answer.formula.append(
            f"this model cannot be read with the inputs that {one.where} was saved with "
            f"({_first_line(error)}); it was saved as {one.saved.formula}"
        )
        _of_names(one, answer, ())
        return answer
    _of_formula(one, looked, answer)
    _of_names(one, answer, norms_of(looked))
    if one.names.fit:
        _of_behaviour(one, looked, answer)
    return answer


def settle(one: Asked, answer: Answer, *, allow: bool) -> tuple[str, ...]:
    """Refuse, or say what was let through.

    Raises:
        WeightsError: something is wrong and not allowed; one line.
    """
    allowed = [f"{name} was missing, as was allowed; it is as it was" for name in one.names.allowed]
    fatal = answer.lacking
    refusals = [*answer.refusals, *fatal]
    if fatal or (refusals and not allow):
        through = LET_THROUGH if not fatal else "--allow-missing PATTERN lets through what may be missing"
        raise WeightsError(f"{one.where} is refused: {'. '.join(refusals)}. {through}")
    return (*allowed, *answer.refusals)


def _is_the_same(one: Asked, answer: Answer) -> bool:
    """Whether one pass with the given tensors is, node by node, the one that was saved."""
    finger = one.saved.fingerprint
    if finger is None or not one.is_whole:
        return False
    if one.given is not None and _has_the_program(one, finger, answer):
        return True
    ends = {site.name: site.node for site in finger.sites}
    try:
        here, program = _with_given(one, ends)
    except Exception:  # whatever another model's forward raises; it is said further on
        return False
    if here is None or here.program != finger.program or in_behaviour(finger, here) or _changed(one):
        return False
    _note_unused(one, program, answer)
    return True


def _has_the_program(one: Asked, finger: Fingerprint, answer: Answer) -> bool:
    """Whether the model computes what was saved, operator by operator, and the tensors are those that were saved.

    Then nothing has to be computed: it is the same function of the same numbers.
    """
    program = one.there.seen(one.model, one.args, one.kwargs) if finger.shapes else None
    if program is None or digest(program, one.there.plain_name) != finger.shapes:
        return False
    here = {name: summed(one.there.sample(tensor)) for name, tensor in one.there.unsaved(one.model).items()}
    tables = replace(one.saved, samples=one.saved.unsaved)
    if here.keys() != one.saved.unsaved.keys() or changed(tables, here, _dtype(one)) or _changed(one):
        return False
    _note_unused(one, program, answer)
    return True


def _with_given(one: Asked, ends: Mapping[str, int]) -> tuple[Fingerprint | None, Program]:
    if one.given is None:
        return fingerprint(one.model, ends, one.args, one.kwargs, None)
    with one.there.holding(one.model, one.args, one.given) as (model, args):
        return fingerprint(model, ends, args, one.kwargs, one.narrow)


def _of_formula(one: Asked, looked: Looked, answer: Answer) -> None:
    stages = stages_of(looked.reading)
    here = Stamp(formula=line(stages), stages=stages, norms=norms_of(looked))
    found: list[Any] = in_formula(one.saved, here)
    if found:
        if one.saved.formula != here.formula:
            found = [_short(each) for each in found]
            what = f"saved as {one.saved.formula}; this model is {here.formula}"
        else:
            what = f"the formula is the same ({here.formula}) and its norms are not"
        answer.formula.append(f"{what}. They differ at {listed(found)}")
    if not (one.saved.known and here.known):
        answer.notes.append("some layers are not understood, so what they compute decides alone")
        if one.saved.fingerprint is None:
            answer.formula.append("the formula is not known, and there is no fingerprint to decide instead")


def _of_names(one: Asked, answer: Answer, norms: Sequence[StampedNorm]) -> None:
    if one.names.fit:
        return
    words = said(one.names, one.saved.norms, norms, one.saved.stages)
    (answer.lacking if one.names.missing or one.names.shapes else answer.names).append(words)


def _of_prefix(names: Names) -> str:
    """That the tensors are of a part of the model, or the model of a part of theirs, in words."""
    if prefix := body_of(names.missing, names.unexpected):
        return f"its tensors are those of what this model holds as {prefix!r}, under names without it; load them there"
    if prefix := body_of(names.unexpected, names.missing):
        return (
            f"its tensors are those of a model that holds this one as {prefix!r}; take those whose names begin so, "
            "and the rest of each name"
        )
    return ""


def _of_behaviour(one: Asked, looked: Looked, answer: Answer) -> None:
    saved = one.saved.fingerprint
    if saved is None:
        answer.notes.append("the checkpoint has no fingerprint, so what the model computes was not compared")
        return
    try:
        here, program = _with_given(one, looked.ends)
    except Exception as error:
        raise WeightsError(f"{one.where}: the forward raises with its weights ({_first_line(error)})") from error
    if here is None:
        answer.notes.append("a model without values computes none to compare")
        return
    if not one.is_whole:
        answer.notes.append("with tensors missing, what the model computes was not compared")
        return
    if new := [name for name in _unused(one, program) if name in one.saved.samples and name not in one.saved.unused]:
        answer.names.append(f"present, never used in this model's forward: {listed(new)}")
    _note_unused(one, program, answer)
    names = _changed(one)
    moved = swapped(one.saved, _samples(one), names, _dtype(one))
    if moved:
        answer.behaviour.append(f"Tensors are swapped: {listed(moved)}")
    if found := in_behaviour(saved, here):
        why = f"; {_count(names)} not what they were when it was saved: {listed(names)}" if names and not moved else ""
        answer.behaviour.append(f"It does not compute what was saved, at {listed(found)}{why}")
    elif names and not moved:
        answer.behaviour.append(f"{_count(names)} not what they were when it was saved: {listed(names)}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} tensors are" if len(names) > 1 else "1 tensor is"


def _note_unused(one: Asked, program: Program, answer: Answer) -> None:
    if names := [name for name in _unused(one, program) if name in one.saved.unused]:
        answer.notes.append(f"present, never used in forward: {listed(names)}")


def _unused(one: Asked, program: Program) -> tuple[str, ...]:
    own, buffers = one.own
    return unused_in(program, own, buffers, one.there.plain_name)


def _samples(one: Asked) -> dict[str, tuple[float, ...]]:
    tensors = one.given if one.given is not None else one.own[0]
    return {name: summed(one.there.sample(tensor)) for name, tensor in tensors.items() if name in one.saved.samples}


def _changed(one: Asked) -> list[str]:
    """The tensors that are not those that were saved; buffers count running things, and may move on."""
    found = changed(one.saved, _samples(one), _dtype(one))
    return [name for name in found if name not in one.saved.buffers]


def _dtype(one: Asked) -> str:
    saved = one.saved.fingerprint.dtype if one.saved.fingerprint else "F32"
    own = [one.there.dtype_of(tensor) for tensor in one.own[0].values()]
    return narrowest([saved, one.narrow or "F64", *own])


def _short(one: Difference) -> Any:
    """A difference without the formulas, where the line has named them already."""
    return one.site if re.match(r"layers? \d", one.site) else one
