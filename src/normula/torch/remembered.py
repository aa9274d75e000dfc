"""Here lives Remembered: shapes that were worked out once are not worked out again.

What an operator makes on the meta device follows from the operator, the layout of its tensors and its numbers alone,
and many operators work that out in Python, where the layers of a stack ask the same again and again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

PLAIN: Final = (Tensor, nn.Parameter)
"""Tensors that are what their layout says; a subclass may be more."""

NUMBERS: Final = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Arguments that are told apart by their type and value."""


class Remembered(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this is on, an operator on meta tensors makes what it made of equal ones before."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[Hashable, tuple[bool, list[tuple[Any, ...]]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        key = _key((args, kwargs)) if _makes_new_tensors(func) else None
        if key is None:
            return func(*args, **kwargs)
        if (func, key) in self._made:
            is_one, layouts = self._made[func, key]
            made = [
                torch.empty_strided(shape, stride, dtype=dtype, device="meta") for _, shape, stride, dtype in layouts
            ]
            return made[0] if is_one else tuple(made)
        result = func(*args, **kwargs)
        outs = [result] if isinstance(result, Tensor) else list(result)
        if outs and _are_new(outs, args):
            self._made[func, key] = (isinstance(result, Tensor), [_layout(one) for one in outs])
        return result


@lru_cache(maxsize=4096)
def _makes_new_tensors(func: Any) -> bool:
    """Whether an operator changes nothing, and returns tensors that are no views."""
    returns = func._schema.returns
    tensors = all(str(one.type) == "Tensor" and one.alias_info is None for one in returns)
    return bool(returns) and tensors and not func._schema.is_mutable


def _key(value: Any) -> Hashable | None:
    """What a result can depend on; None where that is not known."""
    if type(value) in PLAIN:
        is_plain = value.is_meta and value.layout is torch.strided and not value.is_complex()
        return _layout(value) if is_plain else None
    if type(value) in NUMBERS:
        return (type(value), value)
    if isinstance(value, list | tuple | dict):
        parts = [_key(part) for part in (value.items() if isinstance(value, dict) else value)]
        return None if None in parts else (type(value), *parts)
    return None


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return ("tensor", tensor.shape, tensor.stride(), tensor.dtype)


def _are_new(outs: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether results are plain meta tensors, each in memory of its own."""
    if not all(type(one) is Tensor and one.is_meta and not one.storage_offset() for one in outs):
        return False
    given = [one for part in args for one in (part if isinstance(part, list | tuple) else [part])]
    places = [one.untyped_storage()._cdata for one in (*outs, *given) if isinstance(one, Tensor)]
    return len(set(places[: len(outs)])) == len(outs) and not set(places[: len(outs)]) & set(places[len(outs) :])
