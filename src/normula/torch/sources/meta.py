"""Running a model that holds no values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Affirming(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this is on, a truth value read from a meta tensor is True.

    What models ask before they compute is mostly whether a mask is all ones or ids are all in one sequence, and for
    the inputs made here that is so. A branch that hangs on anything else may be the wrong one: what is learned from
    such a pass must be held against a twin with values.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta and args[0].dtype == torch.bool:
            return True
        return func(*args, **(kwargs or {}))
