"""Guarding where people load: inside a `with`, torch, transformers and accelerate ask before they do."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normula.framework import room
from normula.guard.admission import answered, asked, settle, with_tensors
from normula.guard.saving import about, inspect, stamp_in
from normula.guard.stamping import Example, stamp
from normula.record.checkpoint import SIDE, open_checkpoint, replace_text
from normula.record.stamp import Loaded, Stamp


@dataclass(slots=True)
class Watch:
    """What was seen inside a `watching`.

    Attributes:
        seen: each load that was asked about and let through.
        skipped: each that could not be: what it was, in words.
    """

    seen: list[Loaded] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@contextmanager
def watching(
    what: str | os.PathLike[str] | Stamp | None = None,
    example: Example = None,
    *,
    allow: bool = False,
    allow_missing: Sequence[str] = (),
) -> Iterator[Watch]:
    """Guard every `load_state_dict`, `from_pretrained` and `load_checkpoint_in_model` inside.

    A state dict is held against the stamp that is given here; a folder against its own, if it has one, else against
    that. `save_pretrained` inside writes the stamp beside the weights, in normula.json. What is loaded without any
    stamp to hold it against is not refused, and named in the answer's `skipped`.

    The functions are replaced for the whole process until the context ends; other threads are guarded too.

    Args:
        what: a checkpoint with a stamp, or a stamp; None for folders that have their own.
        example: as for `load`, and for what is saved inside.
        allow, allow_missing: as for `load`.

    Raises:
        WeightsError: at the load that is refused, before it changes the model.

    Example:
        >>> import torch
        >>> from normula import guard
        >>> make = lambda first: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first)
        >>> saved = make(False)
        >>> with guard.watching(guard.stamp(saved, (torch.randn(2, 3, 8),))) as watch:
        ...     _ = make(False).load_state_dict(saved.state_dict())
        >>> [one.formula for one in watch.seen]
        ['1 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))']
    """
    known = what if isinstance(what, Stamp) or what is None else inspect(what)
    watch = Watch()

    def ask(
        model: Any, saved: Stamp, where: str, tensors: Mapping[str, Any] | None, names: Collection[str] = ()
    ) -> None:
        one = asked(model, saved, where, example, names)
        if tensors is not None:
            with_tensors(one, tensors, allow_missing)
        answer = answered(one)
        allowed = settle(one, answer, allow=allow)
        watch.seen.append(Loaded(where=where, formula=saved.formula, allowed=allowed, notes=tuple(answer.notes)))

    def state(model: Any, tensors: Mapping[str, Any]) -> None:
        if known is None or not _is_of(known, tensors):
            watch.skipped.append(f"load_state_dict of {type(model).__name__}: no stamp is of its tensors")
            return
        ask(model, known, "the state dict", tensors)

    def checkpoint(model: Any, path: Any) -> None:
        found = open_checkpoint(path)
        saved = stamp_in(found) or known
        if saved is None:
            watch.skipped.append(f"{found.where}: it carries no stamp")
            return
        ask(model, saved, found.where, room("torch").guarded.tensors_in(found), found.entries)

    def pretrained(model: Any, path: Any) -> None:
        if path is None or not Path(path).is_dir():
            if known is None:
                watch.skipped.append(f"from_pretrained({path!r}): no folder, so it has no stamp beside it")
            else:
                ask(model, known, str(path), None)
            return
        checkpoint(model, path)
        found = open_checkpoint(path)
        saved = stamp_in(found) or known
        if saved is not None:  # and what transformers made of the file is what is in it
            ask(model, saved, os.fspath(path), None, found.entries)

    def saved(model: Any, folder: Any) -> None:
        replace_text(Path(folder) / SIDE, json.dumps(about(stamp(model, example), model)))

    with room("torch").hooks.hooked(state, checkpoint, pretrained, saved):
        yield watch


def _is_of(known: Stamp, tensors: Mapping[str, Any]) -> bool:
    """Whether a state dict is of the model that a stamp is of, and not of another that is loaded beside it."""
    plain = room("torch").guarded.plain_names(list(tensors), list(known.samples))
    return not known.samples or any(name in known.samples for name in plain.values())
