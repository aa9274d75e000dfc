"""Loading, and looking again: a checkpoint goes into a model of its own formula only."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from normula.framework import room
from normula.guard.admission import answered, asked, settle, with_tensors
from normula.guard.names import compared, said, under_names_of
from normula.guard.saving import stamp_in, unstamped
from normula.guard.stamping import Example, arguments, guarded, look, norms_of, stages_of
from normula.read import framework_to_read
from normula.record.checkpoint import Checkpoint
from normula.record.stamp import Loaded, Stamp
from normula.record.tensorfile import WeightsError
from normula.spec import Spec
from normula.spec.stamp import stamp as formula_of

NOT_COMPARED = "the checkpoint has no fingerprint, so what the model computes was not compared"


def load(
    model: Any,
    path: str | os.PathLike[str],
    example: Example = None,
    *,
    allow: bool = False,
    allow_missing: Sequence[str] = (),
) -> Loaded:
    """Load a checkpoint into a model that has the formula it was saved with, and does what was saved.

    All is asked before any tensor is copied, so a refusal leaves the model as it was. Where the model runs the same
    operators as the one that was saved, seen on shapes alone, and the tensors are those that were saved, that is
    enough; else it is read, and the checkpoint's input runs through it with the checkpoint's weights where they lie.

    Args:
        model: as for `save`; meta tensors get their values here.
        path: of a file, an index or a folder.
        example: only for what was saved with arguments that cannot be written, and for a Linen module its variables.
        allow: whether to load under another formula, another behaviour or with tensors that nothing uses; what was
            let through is in the answer, and a warning.
        allow_missing: patterns of tensors that may be missing, such as `head.*`.

    Returns:
        What was loaded and what was let through.

    Raises:
        WeightsError: it is refused, in one line that names both formulas and the sites; or the file is damaged.
        FileNotFoundError: there is nothing there.

    Example:
        >>> import tempfile, torch
        >>> from normula import guard
        >>> make = lambda first: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first)
        >>> path = tempfile.mkdtemp() + "/layer.safetensors"
        >>> _ = guard.save(make(False), path, (torch.randn(2, 3, 8),))
        >>> guard.load(make(False), path).formula
        '1 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))'
        >>> guard.load(make(True), path)
        Traceback (most recent call last):
        ...
        normula.record.tensorfile.WeightsError: ...saved as 1 x (x = norm(x + attn(x)); ...
    """
    there = guarded(model, arguments(example))
    found = there.open_checkpoint(path)
    saved = stamp_in(found)
    if saved is None and isinstance(getattr(model, "spec", None), Spec) and "formula" in (found.about or {}):
        return _by_spec(model, found, allow, allow_missing)
    if saved is None:
        raise WeightsError(unstamped(found))
    tensors = there.tensors_in(found)
    one = asked(model, saved, found.where, example, tensors)
    with_tensors(one, tensors, allow_missing)
    answer = answered(one)
    allowed = settle(one, answer, allow=allow)
    for word in allowed:
        warnings.warn(f"{found.where}: let through: {word}", stacklevel=2)
    assert one.given is not None
    tree = there.put(one.model, one.args, one.given)
    return Loaded(where=found.where, formula=saved.formula, allowed=allowed, notes=tuple(answer.notes), tree=tree)


def verify(model: Any, path: str | os.PathLike[str], example: Example = None) -> Loaded:
    """Ask whether a live model still is and does what was saved: formula, norms, behaviour, weights.

    Args:
        model, path, example: as for `load`; nothing is loaded.

    Raises:
        WeightsError: it is not; one line says where.
    """
    there = guarded(model, arguments(example))
    found = there.open_checkpoint(path)
    one = asked(model, _stamp(found), found.where, example, there.tensors_in(found))
    answer = answered(one)
    if answer.refusals:
        raise WeightsError(f"the model is not what {found.where} says: {'. '.join(answer.refusals)}")
    return Loaded(where=found.where, formula=one.saved.formula, notes=tuple(answer.notes))


def put_unstamped(model: Any, path: str | os.PathLike[str], example: Example = None) -> Any:
    """Load a checkpoint without a stamp, under its user's word that it is this model's; every tensor must fit.

    Returns:
        For JAX the loaded weights, as they are passed to the model.

    Raises:
        WeightsError: a tensor is missing, left over or of another shape; the message says where it belongs.
    """
    args, kwargs = arguments(example)
    there = guarded(model, (args, kwargs))
    found = there.open_checkpoint(path)
    own, buffers = there.tensors_of(model, args)
    given = under_names_of(there, own, there.tensors_in(found))
    shapes = [{name: there.shape_of(one) for name, one in tensors.items()} for tensors in (own, given)]
    names = compared(*shapes, optional=buffers)
    if not names.fit:
        stages, norms = _read(model, args, kwargs, there)
        raise WeightsError(f"{found.where} does not fit: {said(names, (), norms, stages)}")
    return there.put(model, args, given)


def _read(model: Any, args: Any, kwargs: Any, there: Any) -> Any:
    if not args and not kwargs:
        args, kwargs = there.example_of(model)
    looked = look(model, args, kwargs)
    return stages_of(looked.reading), norms_of(looked)


def _by_spec(model: Any, found: Any, allow: bool, allow_missing: Sequence[str]) -> Loaded:
    """Load what `normula.torch.save` or `normula.flax.save` wrote for a model that was built from a spec."""
    if allow_missing:
        raise ValueError(f"allow_missing would have no effect: the names in {found.where} follow from its spec")
    there, wanted = room(framework_to_read(model, ())), formula_of(model.spec)
    tree = there.load(model, found.where, allow=allow)
    other = found.about["formula"] != wanted
    allowed = (f"saved as {found.about['formula']}; this model is {wanted}",) if other else ()
    return Loaded(where=found.where, formula=found.about["formula"], allowed=allowed, notes=(NOT_COMPARED,), tree=tree)


def _stamp(found: Checkpoint) -> Stamp:
    saved = stamp_in(found)
    if saved is None:
        raise WeightsError(unstamped(found))
    return saved
