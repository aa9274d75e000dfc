"""Saving: a checkpoint that knows its formula."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normula.guard.stamping import Example, arguments, guarded, stamp
from normula.record.base import from_dict, to_dict
from normula.record.checkpoint import Checkpoint, open_checkpoint, write_checkpoint
from normula.record.stamp import Stamp
from normula.record.tensorfile import WeightsError
from normula.record.weights import stored
from normula.spec import Spec
from normula.spec.stamp import about as about_spec


def save(
    model: Any,
    path: str | os.PathLike[str],
    example: Example = None,
    *,
    stamp: Stamp | None = None,
    dtype: str | None = None,
    shard_bytes: int | None = None,
) -> Stamp:
    """Save a model's weights with its formula and what it does with a fixed input.

    A path that ends in .safetensors becomes one file. Another becomes a folder: for PyTorch one that transformers can
    load, in shards where `shard_bytes` says so; for JAX an Orbax checkpoint. The formula stands in the metadata of
    every file, where it stays when a file is renamed or uploaded alone. What was there is whole until all is written.

    Args:
        model: a module, as `normula.read` takes it, also compiled or wrapped for distributed training; a Linen module
            bound, or with its variables first in the example; or a state dict, with a stamp.
        path: of the file or folder.
        example: a tuple or a dict of its forward's arguments; None where they can be guessed.
        stamp: what `guard.stamp` gave; a state dict needs it.
        dtype: of the numbers in the file, such as `bfloat16`; None for those of the model.
        shard_bytes: how large one file of a folder may be.

    Returns:
        The stamp that was written.

    Raises:
        ValueError: the model cannot be read, or a state dict comes without a stamp.

    Example:
        >>> import tempfile, torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> folder = tempfile.mkdtemp()
        >>> save(layer, f"{folder}/layer.safetensors", (torch.randn(2, 3, 8),)).norms[0].site
        'attn.norm_sum'
    """
    if isinstance(model, Mapping):
        return _save_tensors(model, path, stamp, dtype, shard_bytes)
    args, kwargs = arguments(example)
    there = guarded(model, (args, kwargs))
    stamp = stamp_of(model, example) if stamp is None else stamp
    there.write(model, args, path, about(stamp, model), dtype=dtype, shard_bytes=shard_bytes, tied=stamp.tied)
    return stamp


stamp_of = stamp


def about(stamp: Stamp, model: Any = None) -> dict[str, Any]:
    """What travels with the weights: the formula as a line, the spec of a model that was built from one, the stamp."""
    spec = getattr(model, "spec", None)
    said = about_spec(spec) if isinstance(spec, Spec) else {"formula": stamp.formula}
    return {**said, "stamp": to_dict(stamp)}


def inspect(path: str | os.PathLike[str]) -> Stamp:
    """The stamp of a checkpoint.

    Raises:
        FileNotFoundError: there is nothing there.
        WeightsError: it is no checkpoint, or carries no stamp.
    """
    found = open_checkpoint(path)
    stamp = stamp_in(found)
    if stamp is None:
        raise WeightsError(unstamped(found))
    return stamp


def stamp_in(found: Checkpoint) -> Stamp | None:
    """The stamp that a checkpoint carries; None where it carries none.

    Raises:
        WeightsError: what it carries is no stamp.
    """
    if found.about is None or "stamp" not in found.about:
        return None
    try:
        return from_dict(Stamp, found.about["stamp"])
    except ValueError as error:
        raise WeightsError(f"the stamp of {found.where} does not read: {error}") from None


def unstamped(found: Checkpoint) -> str:
    """That a checkpoint carries no stamp, and what to do."""
    said = (found.about or {}).get("formula")
    known = f"carries its formula ({said}) and no stamp of what a model does" if said else "carries no formula"
    return (
        f"{found.where} {known}. Find out with normula guard check what it was trained with, "
        "then stamp it with normula guard save"
    )


def _save_tensors(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    stamp: Stamp | None,
    dtype: str | None,
    shard_bytes: int | None,
) -> Stamp:
    """Save a state dict, under the stamp of the model that it came from."""
    if stamp is None:
        raise ValueError(
            "A state dict does not say what it is of. Pass stamp=guard.stamp(model, example), or the model"
        )
    if all(type(one).__module__.split(".")[0] == "torch" for one in tensors.values()):
        from normula.framework import room

        there = room("torch").guarded
        plain = there.plain_names(list(tensors), list(stamp.samples))
        named = {plain[name]: tensor for name, tensor in tensors.items()}
        write_checkpoint(
            Path(path),
            {name: there.stored(one, dtype) for name, one in named.items() if name not in there.tied(named)},
            about(stamp),
            shard_bytes=shard_bytes,
            metadata=there.FORMAT,
        )
        return stamp
    write_checkpoint(
        Path(path), {name: stored(one) for name, one in tensors.items()}, about(stamp), shard_bytes=shard_bytes
    )
    return stamp
