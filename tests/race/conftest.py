"""What tests of races share."""

import pytest

from normula.race import Limits
from tests.race.inline import Inline


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races run in this process, without the seconds that other processes take to start."""
    monkeypatch.setattr(Limits, "opened", lambda limits, grid: Inline())
