"""Which device computes."""

from __future__ import annotations

import torch


def device(name: str = "auto") -> str:
    """The device of a name; `auto` is a GPU where there is one, else the processor.

    Raises:
        ValueError: there is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"there is no device {name!r} here that PyTorch can use; say cpu, cuda or auto") from None
    return name


def gpus() -> int:
    """How many GPUs there are."""
    return torch.cuda.device_count()
