"""`remap`: the optimizer of a model that was rewired in the middle of its training."""

from __future__ import annotations

from typing import Any

from normula.framework import framework_of, room
from normula.record.rewiring import Plan
from normula.rewire.errors import RewireError


def remap(optimizer: Any, model: Any, new: Any) -> Any:
    """An optimizer for a rewired model, which goes on where that of the old model is.

    Args:
        optimizer: PyTorch's, or of its kind, over the parameters of `model`. It stays as it was.
        model: that was rewired.
        new: what `rewire` made of it.

    Returns:
        An optimizer of the same class and settings: parameters that stayed keep their moments, a copy of a shared norm
        has those of the norm, new ones start without, in the group in which most are vectors, removed ones are gone.

    Raises:
        RewireError: `new` was not rewired from such a model, or its weights were drawn anew.

    Example:
        >>> import torch
        >>> from normula.rewire import rewire
        >>> stack = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        >>> optimizer = torch.optim.AdamW(stack.parameters(), lr=1e-3)
        >>> new = rewire(stack, "pre", example=(torch.randn(1, 3, 8),), accept_inexact=True)
        >>> sum(len(group["params"]) for group in remap(optimizer, stack, new).param_groups) - 24  # a closing norm more
        2
    """
    plan = getattr(new, "rewiring", None)
    if not isinstance(plan, Plan):
        raise RewireError("An optimizer is carried over to a model that rewire has made; this one is none.")
    if plan.preserved == "nothing":
        raise RewireError("The weights of this model were drawn anew, and moments of the old ones do not fit them.")
    if framework_of(new) != "torch":
        raise RewireError(
            "An optimizer of PyTorch is carried over to modules. The state of one of JAX is a tree like that of the "
            "weights: start one with the new model, and put in the arrays of weights that stayed, under their names."
        )
    copied = {norm.path: norm.like for norm in plan.operation.norms if norm.copied}
    try:
        return room("torch").rewire.remapped(optimizer, model, new, copied)
    except ValueError as error:
        raise RewireError(str(error)) from error
