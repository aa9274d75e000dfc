"""Fixtures for models."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def seeded() -> Iterator[None]:
    """Torch's global generator starts from 0, and is put back."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
