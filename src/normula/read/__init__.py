"""`read`: what any model does to its residual stream, as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from normula.framework import framework_of, room
from normula.read.findings import with_broken
from normula.read.reading import reading_of
from normula.record.reading import Ran, Reading

__all__ = ["Reading", "framework_to_read", "read"]

PASSES = 3
"""How often a model is recorded: the first pass may fill caches that later ones find."""


def read(model: Any, *args: Any, **kwargs: Any) -> Reading:
    """What a model does to its residual stream.

    One ordinary forward pass is recorded, operator by operator, with the model's parameters randomised where they
    are not generic; formulas are found in what was computed, never in names, and each is replayed on real tensors
    before it is said. The model is as it was afterwards.

    Args:
        model: a PyTorch module; a Linen module, bound or with its variables as the first argument; an NNX or Equinox
            module; or a function of arrays of JAX: of parameters and inputs, or of inputs alone.
        args, kwargs: example arguments of its forward.

    Returns:
        A reading; it keeps hold of the model and its arguments, so that `Reading.flow` can measure them.

    Raises:
        ValueError: no room can read such a model.
        Exception: whatever the forward raises.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> read(layer, torch.randn(2, 3, 8)).stages[0].block
        'x = norm(x + attn(x)); x = norm(x + mlp(x))'
    """
    there = room(framework_to_read(model, (args, kwargs)))
    for _ in range(PASSES):
        program = there.capture(model, args, kwargs)
        reading = reading_of(program, lambda keep: there.values(program, model, args, kwargs, keep))  # noqa: B023
        if reading is not None:
            if any(stage.proof == "failed" for stage in reading.stages):
                reading = with_broken(reading, there.not_finite(model, args, kwargs))
            return replace(reading, ran=Ran(model, args, kwargs))
    raise ValueError(
        "Each forward pass of this model computes something else, so no reading of it can be proved. "
        "Pass arguments that make it repeatable."
    )


def framework_to_read(model: Any, given: Any) -> str:
    """The framework that a model is a module of, or a function on arrays of.

    Raises:
        ValueError: it is written in none that can be read.
    """
    found = framework_of(model)
    if found is None and callable(model) and _is_of_jax((model, given)):
        return "flax"
    if found is None:
        raise ValueError(
            "A model that can be read is a module of PyTorch, Linen, NNX or Equinox, or a function of arrays of JAX, "
            f"not {type(model).__module__}.{type(model).__qualname__}. "
            "Pass the module itself, then example arguments of its forward."
        )
    return found


def _is_of_jax(value: Any, depth: int = 8) -> bool:
    """Whether a value is an array of JAX, or one of its functions, or holds one; JAX is not loaded for it."""
    if type(value).__module__.split(".")[0] in ("jax", "jaxlib"):
        return True
    parts = value if isinstance(value, Mapping | list | tuple) else getattr(value, "__dict__", {})
    parts = parts.values() if isinstance(parts, Mapping) else parts
    return depth > 0 and not isinstance(value, type) and any(_is_of_jax(part, depth - 1) for part in parts)
