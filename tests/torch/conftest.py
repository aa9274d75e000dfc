"""Fixtures for models."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Array annotations go unchecked, as for a user: compilers cannot see through the checks, and they come first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Torch's global generator starts from 0, and is put back."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
