"""Which device computes."""

from __future__ import annotations

import jax


def device(name: str = "auto") -> str:
    """The device of a name; `auto` is JAX's first choice: an accelerator where there is one, else the processor.

    Raises:
        ValueError: there is no such device here.
    """
    if name == "auto":
        return "cuda" if jax.default_backend() == "gpu" else jax.default_backend()
    try:
        jax.devices("gpu" if name == "cuda" else name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r} here that JAX can use; say cpu, cuda or auto") from None
    return name


def gpus() -> int:
    """How many GPUs there are."""
    return jax.local_device_count() if jax.default_backend() == "gpu" else 0
