"""PyTorch's side of `guard`: a model's tensors by the names that a file has, and a model with other tensors in it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from normula.record import checkpoint
from normula.record.checkpoint import Checkpoint, replace_text, write_checkpoint
from normula.record.program import Program
from normula.record.tensorfile import Entry, Stored, WeightsError
from normula.torch.capture import capture
from normula.torch.capture import recorded as recorded_pass
from normula.torch.remembered import Remembered

KINDS: Final = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"},
    **{torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.complex64: "C64"},
    **{torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"},
}
"""The format's word for each dtype."""

WRAPPERS: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch.compile, FSDP and activation checkpoints put into a name."""

SAMPLE: Final = 64
"""How many numbers of a tensor are looked at."""

FORMAT: Final = {"format": "pt"}
"""What transformers looks for in a file's metadata."""


def bare(model: Any) -> Any:
    """The module inside torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(model, nn.parallel.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod
        else:
            return model


def plain_name(name: str) -> str:
    """A tensor's name without what wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def plain_names(names: Sequence[str], own: Sequence[str]) -> dict[str, str]:
    """For each name, the one that a model without wrappers has; `module.` goes where only the file has it."""
    plain = {name: plain_name(name) for name in names}
    wrapped = bool(names) and all(one.startswith("module.") for one in plain.values())
    if wrapped and not any(name.startswith("module.") for name in own):
        plain = {name: one.removeprefix("module.") for name, one in plain.items()}
    return plain


def tensors_of(model: nn.Module, args: Sequence[Any] = ()) -> tuple[dict[str, Tensor], frozenset[str]]:
    """All tensors that are saved, by plain name, and which of them are buffers."""
    model = bare(model)
    parameters = {plain_name(name) for name, _ in model.named_parameters(remove_duplicate=False)}
    found = {
        plain_name(name): tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if isinstance(tensor, Tensor)
    }
    return found, frozenset(found.keys() - parameters)


def tied(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name whose tensor is there under another before it, that other.

    Raises:
        WeightsError: two tensors share some of their memory and are not the same.
    """
    first: dict[tuple[Any, ...], str] = {}
    same: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.is_meta or not tensor.numel():
            key: tuple[Any, ...] = (id(tensor),)
        else:
            key = (tensor.data_ptr(), tensor.device, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key in first:
            same[name] = first[key]
        else:
            first[key] = name
    return same


def stored(tensor: Tensor, dtype: str | None = None) -> Stored:
    """A tensor to be written; its bytes are those of the live tensor, where that is possible."""
    if tensor.is_meta:
        raise WeightsError("a model on the meta device has no weights to save; give it some first")
    to = tensor.dtype if dtype is None or not tensor.is_floating_point() else getattr(torch, dtype, None)
    if to not in KINDS:
        raise WeightsError(f"a safetensors file holds no tensors of dtype {dtype or tensor.dtype}")

    def read() -> Any:
        if not tensor.numel():
            return b""
        flat = tensor.detach().to("cpu", to).contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().data

    return Stored(dtype=KINDS[to], shape=tuple(tensor.shape), read=read)


def from_bytes(entry: Entry, held: memoryview) -> Tensor:
    """A tensor over the bytes of a file."""
    dtype = next((one for one, kind in KINDS.items() if kind == entry.dtype), None)
    if dtype is None:
        raise WeightsError(f"PyTorch has no dtype for {entry.dtype}")
    if entry.start == entry.end:
        return torch.empty(entry.shape, dtype=dtype)
    width = dtype.itemsize
    if np.frombuffer(held, np.uint8).ctypes.data % width:
        held = memoryview(bytearray(held))  # a file of others may not be aligned
    return torch.frombuffer(held, dtype=dtype).reshape(entry.shape)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """A safetensors checkpoint; PyTorch's own files are pickles, and are never read.

    Raises:
        FileNotFoundError: there is nothing there.
        WeightsError: it is none, or damaged.
    """
    return checkpoint.open_checkpoint(path)


def tensors_in(found: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint, over its mapped bytes."""
    return {name: from_bytes(entry, found.bytes_of(name)) for name, (_, entry) in found.entries.items()}


def write(
    model: Any,
    args: Sequence[Any],
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    *,
    dtype: str | None,
    shard_bytes: int | None,
    tied: Mapping[str, str],
) -> None:
    """Write a model's tensors and what is known about them; into a folder, with the config that transformers reads."""
    tensors, _ = tensors_of(model)
    path = Path(path)
    checkpoint.refuse_as_target(path)
    if path.suffix != ".safetensors":
        path.mkdir(parents=True, exist_ok=True)
        for name, text in _configs(bare(model)).items():
            replace_text(path / name, text)
    elif shard_bytes is not None:
        raise ValueError(f"{path} is one file, and shards are several; name a folder")
    kept = {name: stored(one, dtype) for name, one in tensors.items() if name not in tied}
    write_checkpoint(path, kept, about, shard_bytes=shard_bytes, metadata=FORMAT)


def _configs(model: nn.Module) -> dict[str, str]:
    """The configs of a model of transformers, as it writes them itself."""
    config: Any = copy.deepcopy(getattr(model, "config", None))
    if not hasattr(config, "to_json_string"):
        return {}
    config.architectures = [type(model).__name__]
    found = {"config.json": config.to_json_string()}
    generation: Any = getattr(model, "generation_config", None)
    if hasattr(generation, "to_json_string"):
        found["generation_config.json"] = generation.to_json_string()
    return found


def sample(tensor: Tensor) -> list[float]:
    """Some numbers of a tensor, at places that depend on its size alone; none of one without values."""
    if tensor.is_meta or not tensor.numel() or tensor.is_complex():
        return []
    step = max(1, tensor.numel() // SAMPLE)
    flat = tensor.detach()
    if flat.is_contiguous():
        picked = flat.view(-1)[::step][:SAMPLE]
    else:
        picked = _picked(flat, torch.arange(0, tensor.numel(), step)[:SAMPLE])
    found: list[float] = picked.to("cpu", torch.float64).tolist()
    return found


def is_empty(tensor: Tensor) -> bool:
    """Whether a tensor has a shape only."""
    return tensor.is_meta


def dtype_of(tensor: Tensor) -> str:
    """A tensor's dtype in the format's words."""
    return KINDS.get(tensor.dtype, "?")


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's shape."""
    return tuple(tensor.shape)


@contextmanager
def holding(
    model: nn.Module, args: tuple[Any, ...], given: Mapping[str, Tensor]
) -> Iterator[tuple[nn.Module, tuple[Any, ...]]]:
    """Inside, a model computes with other tensors; afterwards it has its own again.

    A tensor of the model's dtype and device is used where it lies, without a copy.
    """
    own, _ = tensors_of(model)
    held: list[tuple[Tensor, Tensor]] = []
    meta = {name: one for name, one in given.items() if own[name].is_meta}
    seen: set[int] = set()
    with _swapped(model, meta) if meta else nullcontext():
        try:
            for name, tensor in given.items():
                if name not in meta and id(own[name]) not in seen:
                    seen.add(id(own[name]))
                    held.append((own[name], own[name].data))
                    own[name].data = tensor.to(own[name].device, own[name].dtype)
            yield model, args
        finally:
            for tensor, before in held:
                tensor.data = before


@contextmanager
def _swapped(model: nn.Module, given: Mapping[str, Tensor]) -> Iterator[None]:
    """The same for tensors without values, which cannot be given any."""
    places = list(_places(bare(model), given, copied=False))
    try:
        for table, key, _, new in places:
            table[key] = new
        yield
    finally:
        for table, key, old, _ in places:
            table[key] = old


def put(model: nn.Module, args: tuple[Any, ...], given: Mapping[str, Tensor]) -> None:
    """Give a model tensors for good: copied into its own, or where those have no values, in their place."""
    own, _ = tensors_of(model)
    lacking = {name: one for name, one in given.items() if own[name].is_meta}
    for table, key, _, new in list(_places(bare(model), lacking, copied=True)):
        table[key] = new
    with torch.no_grad():
        for name, tensor in given.items():
            if name not in lacking:
                own[name].copy_(tensor)


def _places(
    model: nn.Module, given: Mapping[str, Tensor], *, copied: bool
) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """Where each tensor stands, with the one that should; a tensor that stands at several places stays one."""
    made: dict[int, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for table in (module._parameters, module._buffers):
            for key, old in table.items():
                name = plain_name(f"{path}.{key}" if path else key)
                if name not in given or old is None:
                    continue
                if id(old) not in made:
                    new = given[name].to(old.dtype, copy=copied)
                    is_parameter = isinstance(old, nn.Parameter)
                    made[id(old)] = nn.Parameter(new, old.requires_grad) if is_parameter else new
                yield table, key, old, made[id(old)]


@contextmanager
def eagerly() -> Iterator[None]:
    """Inside, a model runs as it is written: nothing compiled, and attention by the same operators on every device."""
    stance = torch.compiler.set_stance("force_eager") if hasattr(torch.compiler, "set_stance") else nullcontext()
    with stance, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield


def recorded(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> tuple[Program, dict[int, np.ndarray]]:
    """One pass with the weights that the model has, on its device."""
    with eagerly():
        return recorded_pass(bare(model), args, kwargs, keep)


def seen(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """What a pass computes, seen on tensors that have shapes only; None where the forward needs values."""
    model = bare(model)
    try:
        with eagerly(), _without_values(model), Remembered():
            return capture(model, args, kwargs)
    except Exception:  # whatever a forward raises that asks a tensor for its values
        return None


@contextmanager
def _without_values(model: nn.Module) -> Iterator[None]:
    """Inside, every parameter and buffer is on the meta device; a tensor that stands at two places stays one."""
    tables: list[Any] = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    before: list[dict[str, Any]] = [dict(table) for table in tables]
    empty: dict[int, Any] = {}
    try:
        for table in tables:
            for key, one in table.items():
                if one is not None:
                    if id(one) not in empty:
                        meta = torch.empty_like(one, device="meta")
                        empty[id(one)] = (
                            nn.Parameter(meta, one.requires_grad) if isinstance(one, nn.Parameter) else meta
                        )
                    table[key] = empty[id(one)]
        yield
    finally:
        for table, held in zip(tables, before, strict=True):
            table.update(held)


def unsaved(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that a state dict does not have."""
    saved, _ = tensors_of(model)
    return {name: one for path, one in bare(model).named_buffers() if (name := plain_name(path)) not in saved}


def precision() -> str | None:
    """The narrower dtype that products are taken in, where the user has asked for one."""
    narrow = torch.get_float32_matmul_precision() != "highest" and torch.cuda.is_available()
    return "TF32" if narrow else None


def as_array(value: Any) -> np.ndarray | None:
    """A tensor of the example as an array; bfloat16 as float32. None for what is no tensor."""
    if not isinstance(value, Tensor):
        return None
    tensor = value.detach().cpu()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def as_input(array: np.ndarray, model: nn.Module) -> Tensor:
    """An array of an example as a tensor, where the model is; real numbers in the model's dtype."""
    first = next((one for one in bare(model).parameters() if one.is_floating_point()), None)
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if first is None:
        return tensor
    device = "cpu" if first.is_meta else first.device
    return tensor.to(device, first.dtype) if tensor.is_floating_point() else tensor.to(device)


def given_besides(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments that are no weights: all of them."""
    return args, kwargs


def with_weights(model: nn.Module, args: tuple[Any, ...], given: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with the weights that were given among them: no module of PyTorch takes any."""
    return args


def example_of(model: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that a model's forward takes, found by trying, where the user gave none.

    Raises:
        ValueError: none were found; the message says what to pass.
    """
    from normula.data import random_input
    from normula.torch.model import Model
    from normula.torch.sources.errors import SourceError
    from normula.torch.sources.guess import Guess
    from normula.torch.sources.trying import fitted, tensors

    model = bare(model)
    if isinstance(model, Model) and model.spec.encoder is None:
        return (as_input(random_input(model.spec, 0, 2, 5), model),), {}
    try:
        guess = Guess(model, getattr(model, "config", {}))
        return (), dict(tensors(fitted(guess, guess.first(), {}), model))
    except SourceError as error:
        raise ValueError(f"example inputs of this model could not be guessed ({error}); pass example=(x,)") from None


def _picked(tensor: Tensor, places: Tensor) -> Tensor:
    """Numbers of a tensor that does not lie in one piece, by their places in the order of its axes."""
    index = np.unravel_index(places.numpy(), tuple(tensor.shape))
    return tensor[tuple(torch.from_numpy(one).to(tensor.device) for one in index)]
