"""What a module says to the mode that follows the stream through it; without such a mode it says nothing."""

from __future__ import annotations

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


def passed(tensor: Tensor, *, stays: bool) -> Tensor:
    """A tensor that a norm let pass.

    Args:
        tensor: what the norm was given.
        stays: whether the model carries the norm's output on as its stream.
    """
    if has_torch_function_unary(tensor):
        result: Tensor = handle_torch_function(passed, (tensor,), tensor, stays=stays)
        return result
    return tensor


def begun(tensor: Tensor) -> Tensor:
    """The tensor that a stream begins as, inside of the module whose forward runs the layers."""
    if has_torch_function_unary(tensor):
        result: Tensor = handle_torch_function(begun, (tensor,), tensor)
        return result
    return tensor


def caught(tensor: Tensor, *, place: int, is_output: bool) -> Tensor:
    """A tensor that a sublayer was given, or its output."""
    if has_torch_function_unary(tensor):
        result: Tensor = handle_torch_function(caught, (tensor,), tensor, place=place, is_output=is_output)
        return result
    return tensor
