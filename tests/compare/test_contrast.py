"""What the main job shows is there: Post-LN fails under Xavier weights and learns under small ones."""

import pytest

from normula.compare import Settings
from normula.race import Entry, Job, cores, run, run_all
from normula.record import Trial
from normula.spec import Recipe, Spec

DEFAULT = Settings()
RUNS = {"post, Xavier": ("post", "xavier"), "pre, Xavier": ("pre", "xavier"), "post, normal 0.02": ("post", "normal")}


def entry(placement: str, init: str) -> Entry:
    """A run of the default comparison at the middle rate, without warmup, for 200 steps."""
    spec = Spec(
        placement=placement,
        layers=DEFAULT.layers,
        width=DEFAULT.width,
        heads=DEFAULT.heads,
        activation=DEFAULT.activation,
        causal=True,
        vocab=256,
        context=DEFAULT.context,
        init=init,
    )
    return Entry(spec=spec, recipe=Recipe(steps=200, lr=3e-3, batch=DEFAULT.batch), task="text")


@pytest.fixture(scope="module")
def trials() -> dict[str, Trial]:
    jobs = [Job(run, (entry(*what),)) for what in RUNS.values()]
    results = dict(run_all(jobs, min(2, cores())))
    return {name: results[place] for place, name in enumerate(RUNS)}


def test_the_contrast_is_real(trials: dict[str, Trial]) -> None:
    assert {name: one.outcome for name, one in trials.items()} == {
        "post, Xavier": "stuck",
        "pre, Xavier": "learned",
        "post, normal 0.02": "learned",
    }
    stuck = trials["post, Xavier"]
    assert abs(stuck.loss - stuck.stuck_loss) < 0.1  # at the frequencies of the bytes, not somewhere else
    assert trials["pre, Xavier"].loss < stuck.loss - 0.3
