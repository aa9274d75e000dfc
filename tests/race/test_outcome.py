"""Learned, stuck, diverged."""

import math

import pytest

from normula.race.outcome import MARGIN, outcome

STUCK = 3.0
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("curve", "loss", "expected"),
    [
        ([5.5, 3.2, 2.5], 2.5, "learned"),
        ([5.5], STUCK - MARGIN, "learned"),
        ([5.5], STUCK - MARGIN + 1e-9, "stuck"),
        ([5.5, 3.1], STUCK, "stuck"),
        ([5.5, 9.0, 5.0], 5.4, "stuck"),  # worse than frequencies, better than its start
        ([2.0], 2.95, "stuck"),  # above its start, and not above the frequencies
        ([5.5, 5.6], 5.6, "diverged"),
        ([5.5, 9.0, 2.0], 2.0, "learned"),  # what it went through on the way does not count
        ([5.5, NAN], NAN, "diverged"),
        ([5.5, INF], NAN, "diverged"),
        ([5.5, NAN, 2.0], 2.0, "diverged"),
        ([NAN], NAN, "diverged"),
        ([5.5, 2.5], INF, "diverged"),
        ([], 2.0, "learned"),
        ([], 5.0, "stuck"),
    ],
)
def test_what_a_run_came_to(curve: list[float], loss: float, expected: str) -> None:
    assert outcome(curve, loss, STUCK) == expected
