"""What the tests of JAX share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    """Compiled programs are kept for ever by JAX, and hundreds of them are gigabytes; those of a module go with it."""
    yield
    jax.clear_caches()
