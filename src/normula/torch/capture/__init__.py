"""PyTorch's side of reading: one ordinary forward pass, recorded as a Program below autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from normula.record.program import Program
from normula.torch.capture.nested import tensors
from normula.torch.capture.recorder import Recorder
from normula.torch.capture.scope import undisturbed
from normula.torch.sources.meta import Affirming

__all__ = ["Model", "capture", "module_of", "recorded", "values"]

Model: TypeAlias = nn.Module | torch.export.ExportedProgram

SEED: Final = 20_240_229
"""Of every recorded pass, so that two of them compute the same."""


def capture(model: Model, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Program:
    """What a forward pass of the model computes.

    Args:
        model: any module, which is not changed; or an exported program.
        args, kwargs: of its forward; for a model on the meta device, tensors are moved there.

    Raises:
        Exception: whatever the forward raises.
    """
    model = module_of(model)
    args, kwargs = placed(model, args), placed(model, dict(kwargs or {}))
    recorder, outputs = _run(model, args, kwargs, frozenset())
    return _program(model, recorder, outputs, fused=_takes_fast_path(model, args, kwargs))


def recorded(
    model: Model, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> tuple[Program, dict[int, np.ndarray]]:
    """One pass with the parameters as they are: what it computes, and the values of some of its nodes and its outputs.

    Raises:
        Exception: whatever the forward raises.
    """
    model = module_of(model)
    recorder, outputs = _run(model, placed(model, args), placed(model, dict(kwargs)), keep, generic=False)
    came_out = {node: tensor.detach().double().cpu().numpy() for node, tensor in outputs.items() if not tensor.is_meta}
    return _program(model, recorder, outputs, fused=False), {**recorder.kept, **came_out}


def values(
    program: Program, model: Model, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int]
) -> dict[int, np.ndarray] | None:
    """The values of some nodes of `capture`'s Program, computed once more; None where the pass computes others.

    A first pass may fill caches that a second one finds.

    Raises:
        ValueError: the model is on the meta device, where nothing has a value.
    """
    if not program.real:
        raise ValueError("A model on the meta device computes no values. Read it with real weights, or a smaller twin.")
    model = module_of(model)
    recorder, _ = _run(model, placed(model, args), placed(model, dict(kwargs)), keep)
    same = len(recorder.nodes) == len(program.nodes) and all(
        one.kind == other.kind and one.inputs == other.inputs and one.shape == other.shape
        for one, other in zip(recorder.nodes, program.nodes, strict=True)
    )
    return recorder.kept if same else None


def module_of(model: Model) -> nn.Module:
    """The module that a program runs as, with its parameters under their own names.

    Raises:
        ValueError: its parameters are shards, each a part of a whole.
    """
    if not isinstance(model, nn.Module):
        return model.module()
    shards = next((name for name, one in model.named_parameters() if hasattr(one, "full_tensor")), None)
    if shards is not None:
        raise ValueError(
            f"Every parameter must be whole, and {shards} is sharded (a DTensor): its norm would be that of one part. "
            "Gather the parameters with full_tensor(), or measure the model before it is sharded."
        )
    return model


def _program(model: nn.Module, recorder: Recorder, outputs: Mapping[int, Tensor], *, fused: bool) -> Program:
    return Program(
        nodes=tuple(recorder.nodes),
        outputs=tuple(outputs),
        calls=tuple(recorder.calls),
        uncalled=tuple(
            path for path, module in model.named_modules() if path not in recorder.called and _holds_vectors(module)
        ),
        fused=fused,
        real=not _is_meta(model),
    )


def _run(
    model: nn.Module, args: Any, kwargs: Any, keep: frozenset[int], *, generic: bool = True
) -> tuple[Recorder, dict[int, Tensor]]:
    """A recorded pass, and the nodes that it returned, with their tensors."""
    inputs = [(f"{i}", tensor) for i, tensor in enumerate(tensors(args))]
    inputs += [(name, tensor) for name, value in kwargs.items() for tensor in tensors(value)]
    model = getattr(model, "_orig_mod", model)  # compiled code hides what it computes; the module inside does not
    with undisturbed(model, SEED, generic=generic):
        recorder = Recorder(model, inputs, keep)
        try:
            with Affirming(), recorder.recording():
                result = model(*args, **kwargs)
        finally:
            for parameter, before in recorder.overwritten:
                parameter.data.copy_(before)
    return recorder, {recorder.read(tensor): tensor for tensor in tensors(result)}


def not_finite(model: Model, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The parameters and buffers that hold a number that is not finite."""
    if not isinstance(model, nn.Module):
        model = model.module()
    named = (*model.named_parameters(), *model.named_buffers())
    floats = ((name, one.detach()) for name, one in named if one.is_floating_point() and not one.is_meta)
    return tuple(name for name, one in floats if not bool(torch.isfinite(one).all()))


def _holds_vectors(module: nn.Module) -> bool:
    """Whether a module holds vectors and nothing else, as a norm does."""
    parameters = list(module.parameters())
    return bool(parameters) and not list(module.children()) and all(one.dim() == 1 for one in parameters)


def _is_meta(model: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def placed(model: nn.Module, value: Any) -> Any:
    """Copies of the inputs, where the model is: its forward may change them in place."""
    device = torch.device("meta") if _is_meta(model) else None

    def place(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.detach().clone() if device is None else part.detach().to(device)
        if isinstance(part, list | tuple) and not hasattr(part, "_fields"):
            return type(part)(place(one) for one in part)
        if isinstance(part, dict):
            return type(part)((key, place(one)) for key, one in part.items())
        return part

    return place(value)


class _Names(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def _takes_fast_path(model: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether without gradients the model would run PyTorch's fused encoder layers, which hide their modules."""
    kinds = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
    ready = not model.training and torch.backends.mha.get_fastpath_enabled() and not _is_meta(model)
    if not ready or not any(isinstance(module, kinds) for module in model.modules()):
        return False
    with undisturbed(model, SEED):
        torch.backends.mha.set_fastpath_enabled(True)
        with _Names() as seen:
            model(*args, **kwargs)
    return not seen.names.isdisjoint({"aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"})
