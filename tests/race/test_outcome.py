"""Learned, stuck, diverged; and spikes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normula.race.outcome import MARGIN, SPIKE_WINDOW, WINDOW, final_training_loss, outcome, spikes

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


def falling_then(end: float, length: int = 3 * WINDOW, low: float = 1.0) -> list[float]:
    """Falls from 5 to `low`, stays there, and ends at `end`."""
    return [5.0] * WINDOW + [low] * (length - 2 * WINDOW) + [end] * WINDOW


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (1.0, "learned"),
        (1.99, "learned"),  # it had learnt 2 nats, and has lost half of them less a little
        (2.01, "diverged"),
        (2.95, "diverged"),
    ],
)
def test_what_had_learnt_and_lost_most_of_it_for_good_has_diverged(end: float, expected: str) -> None:
    assert outcome(falling_then(end), end, STUCK) == expected


def test_a_rise_that_comes_back_is_none() -> None:
    assert outcome([*falling_then(2.9), *[1.0] * WINDOW], 1.0, STUCK) == "learned"


def test_a_small_rise_of_a_run_that_had_learnt_little_is_none() -> None:
    """Half of 0.2 nats is less than twice MARGIN."""
    low = STUCK - 0.2
    assert outcome(falling_then(low + 0.15, low=low), low + 0.15, STUCK) == "stuck"
    assert outcome(falling_then(low + 0.25, low=low), low + 0.25, STUCK) == "diverged"


def test_a_short_run_is_judged_by_its_end() -> None:
    assert outcome(falling_then(2.5, length=3 * WINDOW - 1), 2.5, STUCK) == "learned"


@pytest.mark.parametrize(
    ("curve", "value"),
    [
        ([], NAN),
        ([3.0], 3.0),
        ([9.0, *[1.0] * WINDOW], 1.0),
        ([9.0, 1.0, *[2.0] * (WINDOW - 1)], 1.9),
        ([1.0] * WINDOW + [NAN], NAN),
        ([INF, *[1.0] * WINDOW], 1.0),
    ],
)
def test_the_last_training_loss_is_a_mean_over_a_window(curve: list[float], value: float) -> None:
    assert final_training_loss(curve) == pytest.approx(value, nan_ok=True)


def with_jumps(*jumps: int, height: float = 1.0, length: int = 80) -> list[float]:
    """A noisy fall, with the loss higher at some updates."""
    wave = [4.0 - 0.02 * step + 0.01 * (-1) ** step for step in range(length)]
    return [value + height * (step in jumps) for step, value in enumerate(wave)]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (with_jumps(), ()),
        (with_jumps(30, 60), (30, 60)),
        (with_jumps(30, 31, 32, 60), (30, 60)),  # one that lasts is one
        (with_jumps(SPIKE_WINDOW - 1), ()),  # with too little before it
        (with_jumps(SPIKE_WINDOW), (SPIKE_WINDOW,)),
        (with_jumps(40, height=-3.0), ()),
        ([1.0] * 50 + [1.0 + 0.9 * MARGIN] + [1.0] * 9, ()),
        ([1.0] * 50 + [1.0 + 1.1 * MARGIN] + [1.0] * 9, (50,)),
        ([1.0] * 50 + [NAN], (50,)),
        ([], ()),
    ],
)
def test_spikes_are_where_the_loss_jumps(curve: list[float], expected: tuple[int, ...]) -> None:
    assert spikes(curve) == expected


@pytest.mark.property
@given(st.lists(st.floats(0, 10), min_size=30, max_size=60), st.floats(-5, 5))
def test_a_loss_that_only_falls_has_no_spike_whatever_is_added_to_it(values: list[float], shift: float) -> None:
    assert spikes([value + shift for value in sorted(values, reverse=True)]) == ()
