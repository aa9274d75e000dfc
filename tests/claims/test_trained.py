"""Claims that need training: what their runs say, from runs made by hand, and from the smallest that can be made."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from normula import oracle
from normula.claims import TrainedClaim, claim, claims, names
from normula.claims.dropped import held_out, trained, without
from normula.claims.ledger import timed
from normula.claims.reference import COPY, RANKING, WEIGHTS, lane, ranking
from normula.claims.schemes import SCHEMES
from normula.cli import claims_command, main
from normula.race import Entry, Grid, Job, run
from normula.record import ClaimResult, Trial, from_json, to_json
from tests.race.answers import run_of

SLOW = (
    "deep-layers-of-pre-idle",
    "deepnorm-hundred-layers",
    "post-careful-schedule",
    "post-sticks-at-large-rates",
    "pre-larger-rates",
    "pre-stream-grows-in-training",
    "pre-without-warmup",
    "stability-ranking",
    "switching-repairs",
)

Loss = Callable[[Entry], float]


def module(name: str) -> Any:
    return import_module(f"normula.claims.trained.{name.replace('-', '_')}")


def found(name: str) -> TrainedClaim:
    one = claim(name)
    assert isinstance(one, TrainedClaim)
    return one


def entries(name: str) -> list[Entry]:
    return [job.arguments[0] for job in found(name).jobs("torch")]


def judged(name: str, loss: Loss) -> str:
    """The verdict on runs that end at these losses."""
    return found(name).judge([run_of(entry, loss(entry)) for entry in entries(name)]).verdict


def is_post(entry: Entry) -> bool:
    return entry.name == "post"


# ---- the ledger


def test_claims_that_need_training_come_last_and_only_where_they_are_wanted() -> None:
    assert names(slow=True) == (*names(), *SLOW)
    assert not any(isinstance(claim(name), TrainedClaim) for name in names())


@pytest.mark.parametrize("name", SLOW)
def test_it_says_what_by_whom_how_and_how_long(name: str) -> None:
    one = found(name)
    assert one.statement.endswith(".")
    assert one.source
    assert one.how.endswith(".")
    assert 0 < one.minutes <= 6
    assert all(job.arguments[0].framework == "flax" for job in one.jobs("flax"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs run in this process; those that were run."""
    ledger, seen = import_module("normula.claims.ledger"), []

    def run_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Any]]:
        for place, job in enumerate(jobs):
            seen.append(job)
            yield place, job.run(lambda message: None)

    monkeypatch.setattr(ledger, "run_all", run_all)
    return seen


def tiny(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The races of a claim, cut to the smallest models that there are."""
    own = module(name)
    depth = 3 if name == "deep-layers-of-pre-idle" else 1
    small = dict(depth=depth, width=8, batch=2, hidden=16, task="copy")

    def cut(grid: Grid) -> Grid:
        warmup = tuple(min(updates, 2) for updates in grid.warmup)
        return replace(grid, **small, steps=4, warmup=warmup, seeds=2)  # type: ignore[arg-type]

    for field in ("RACE", "RACES"):
        if hasattr(own, field):
            value = getattr(own, field)
            monkeypatch.setattr(own, field, cut(value) if isinstance(value, Grid) else tuple(map(cut, value)))
    monkeypatch.setattr(import_module("normula.claims.dropped"), "SEQUENCES", 4)
    for field in ("WARMUP", "WARMUPS"):
        if hasattr(own, field):
            value = getattr(own, field)
            monkeypatch.setattr(own, field, min(value, 2) if isinstance(value, int) else (0, 2))


@pytest.mark.parametrize("name", SLOW)
def test_it_is_measured_from_the_training_to_the_record(
    name: str, monkeypatch: pytest.MonkeyPatch, here: list[Job]
) -> None:
    tiny(monkeypatch, name)
    said: list[str] = []
    (one,) = claims([name], report=lambda done, of, what: said.append(f"{done} of {of}: {what}"))
    assert one.figures
    assert one.text.endswith(".")
    assert one.how.endswith(" minutes on two idle cores.")
    assert one.seconds > 0
    assert to_json(from_json(ClaimResult, to_json(one))) == to_json(one)
    assert said[0] == f"1 of {len(here)}: training; 0 of 1 claims are judged"
    assert said[-1] == f"{len(here)} of {len(here)}: {name}: {one.verdict}"


def test_a_training_that_two_claims_need_is_made_once(monkeypatch: pytest.MonkeyPatch, here: list[Job]) -> None:
    pair = ("pre-without-warmup", "pre-larger-rates")
    for name in pair:
        tiny(monkeypatch, name)
    wanted = [found(name).jobs("torch") for name in pair]
    assert set(wanted[0]) < set(wanted[1])
    results = claims(pair)
    assert [one.name for one in results] == list(pair)
    assert len(here) == len(wanted[1])


def test_a_job_is_timed() -> None:
    assert timed(Job(math.sqrt, (4.0,))) == (2.0, pytest.approx(0.0, abs=1.0))


# ---- the command


def test_the_command_adds_them_with_slow(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, Any]] = []

    def measured(wanted: Sequence[str], **options: Any) -> tuple[ClaimResult, ...]:
        asked.append({"wanted": list(wanted), "slow": options["slow"]})
        return ()

    monkeypatch.setattr(claims_command, "claims", measured)
    assert main(["claims", "--slow"]) == main(["claims"]) == main(["claims", "stability-ranking"]) == 0
    assert asked == [
        {"wanted": [], "slow": True},
        {"wanted": [], "slow": False},
        {"wanted": ["stability-ranking"], "slow": False},
    ]
    capsys.readouterr()


@pytest.mark.negative
def test_slow_beside_names_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "two-feature-example", "--slow"]) == 2
    assert "a claim that is named is measured, slow or not" in capsys.readouterr().err


# ---- verdicts, from runs made by hand


@pytest.mark.parametrize(
    ("verdict", "losses"),
    [
        ("holds", {("post", 0): 2.7, ("post", 75): 0.02, ("pre", 0): 0.01, ("pre", 75): 0.02}),
        ("holds in part", {("post", 0): 2.7, ("post", 75): 2.7, ("pre", 0): 0.01, ("pre", 75): 0.02}),
        ("not shown here", {("post", 0): 0.02, ("post", 75): 0.02, ("pre", 0): 0.01, ("pre", 75): 0.02}),
        ("does not hold here", {("post", 0): 2.7, ("post", 75): 0.02, ("pre", 0): 2.7, ("pre", 75): 0.02}),
    ],
    ids=["as-said", "no-cure", "no-trouble", "both-need-it"],
)
def test_the_verdict_on_warmup(verdict: str, losses: dict[tuple[str, int], float]) -> None:
    assert judged("pre-without-warmup", lambda entry: losses[str(entry.name), entry.recipe.warmup]) == verdict


@pytest.mark.parametrize(("post", "pre", "verdict"), [(2.77, 0.1, "holds"), (2.77, 2.77, "does not hold here")])
def test_the_verdict_on_large_rates(post: float, pre: float, verdict: str) -> None:
    assert judged("post-sticks-at-large-rates", lambda entry: post if is_post(entry) else pre) == verdict


@pytest.mark.parametrize(("limit", "verdict"), [(2e-3, "holds"), (1.0, "does not hold here")])
def test_the_verdict_on_the_largest_stable_rate(limit: float, verdict: str) -> None:
    assert (
        judged("pre-larger-rates", lambda entry: 2.77 if is_post(entry) and entry.recipe.lr > limit else 0.1) == verdict
    )


def test_a_larger_rate_with_some_seeds_alone_is_not_shown() -> None:
    def loss(entry: Entry) -> float:
        return 2.77 if is_post(entry) and entry.recipe.lr > 2e-3 and entry.recipe.seed == 2 else 0.1

    assert judged("pre-larger-rates", loss) == "not shown here"


@pytest.mark.parametrize(
    ("post", "pre", "verdict"),
    [
        (2.7, 0.1, "holds"),
        (2.7, 2.7, "does not hold here"),
        (0.1, 0.1, "not shown here"),
        (2.7, 1.0, "does not hold here"),
    ],
)
def test_the_verdict_on_the_switch(post: float, pre: float, verdict: str) -> None:
    assert judged("switching-repairs", lambda entry: post if is_post(entry) else pre) == verdict


def test_a_switch_that_repairs_some_holds_in_part() -> None:
    loss = {"post": 2.7, "pre": 0.1}
    assert (
        judged("switching-repairs", lambda entry: 2.7 if entry.recipe.seed == 0 else loss[str(entry.name)])
        == "holds in part"
    )


@pytest.mark.parametrize(
    ("post", "deepnorm", "verdict"),
    [(2.77, 0.1, "holds"), (0.1, 0.1, "does not hold here"), (2.77, 2.77, "does not hold here")],
)
def test_the_verdict_on_a_hundred_layers(post: float, deepnorm: float, verdict: str) -> None:
    assert judged("deepnorm-hundred-layers", lambda entry: post if is_post(entry) else deepnorm) == verdict


@pytest.mark.parametrize(
    ("post", "spread", "verdict"),
    [
        (1.0, 0.0, "holds"),
        (1.03, 0.001, "holds"),
        (0.9, 0.01, "holds"),
        (1.2, 0.01, "does not hold here"),
        (1.0, 0.2, "not shown here"),
    ],
)
def test_the_verdict_on_a_careful_schedule(post: float, spread: float, verdict: str) -> None:
    """The text's first loss is above all of these; seeds lie on both sides of the mean."""

    def loss(entry: Entry) -> float:
        return post + spread * (entry.recipe.seed - 1) if is_post(entry) else 1.0

    assert judged("post-careful-schedule", loss) == verdict


@pytest.mark.parametrize(("growth", "verdict"), [(1.5, "holds"), (1.0, "not shown here"), (0.7, "does not hold here")])
def test_the_verdict_on_the_stream(growth: float, verdict: str) -> None:
    def grown(entry: Entry) -> Trial:
        trial = run_of(entry, 0.1)
        first, last = trial.snapshots
        return replace(trial, snapshots=(first, replace(last, rms=tuple(growth * size for size in first.rms))))

    name = "pre-stream-grows-in-training"
    assert found(name).judge([grown(entry) for entry in entries(name)]).verdict == verdict


def test_the_verdict_on_the_ranking_is_that_of_the_table() -> None:
    def known(entry: Entry) -> float:
        return RANKING[str(entry.name)][3e-3, 0][entry.recipe.seed]

    assert judged_flat("stability-ranking", known) == "holds"
    assert (
        judged_flat("stability-ranking", lambda entry: 0.5 if entry.name == "Keel" else known(entry)) == "holds in part"
    )
    assert judged_flat("stability-ranking", lambda entry: 0.1) == "does not hold here"


def judged_flat(name: str, loss: Loss) -> str:
    """The same for runs whose training loss is at its end from the start."""
    return (
        found(name)
        .judge([replace(run_of(e, loss(e)), curve=(loss(e),) * e.recipe.steps) for e in entries(name)])
        .verdict
    )


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        ({"pre": 0.01, "lns": 0.2, "peri": 0.2}, "holds"),
        ({"pre": 0.01, "lns": 0.01, "peri": 0.01}, "holds in part"),
        ({"pre": 0.2, "lns": 0.2, "peri": 0.2}, "not shown here"),
        ({"pre": 0.5, "lns": 0.2, "peri": 0.2}, "does not hold here"),
    ],
    ids=["as-said", "nothing-changes-it", "even", "the-other-way"],
)
def test_the_verdict_on_deep_layers(late: dict[str, float], verdict: str) -> None:
    """Each early layer is worth 0.2 nats, each of the last third this much."""
    name = "deep-layers-of-pre-idle"
    losses = [
        (2.0, *[2.2] * 8, *[2.0 + late[str(entry.name)] * (1 + 0.01 * (entry.recipe.seed - 1))] * 4)
        for entry in entries(name)
    ]
    assert found(name).judge(losses).verdict == verdict


# ---- a layer left out


@pytest.mark.parametrize("placement", ["pre", "lns", "peri"])
def test_a_layer_without_its_weights_is_the_identity(placement: str) -> None:
    spec = nm_spec(placement)
    weights = oracle.weights(spec)
    noisy = {
        name: array + 0.1 * np.random.default_rng(1).standard_normal(array.shape) for name, array in weights.items()
    }
    ids = np.random.default_rng(0).integers(0, 16, (2, 8))
    whole, less = (oracle.run(spec, arrays, ids).stream for arrays in (noisy, without(noisy, 1)))
    np.testing.assert_array_equal(less[2], whole[2])  # two steps a layer: layer 0 is as it was
    np.testing.assert_array_equal(less[4], less[2])
    assert np.abs(whole[4] - whole[2]).max() > 0.1


@pytest.mark.parametrize("framework", ["torch", "flax"])
def test_the_loss_of_the_whole_stack_is_the_one_that_training_ends_with(framework: str) -> None:
    """The trainer's own look at the held-out data, in float32, against the oracle's."""
    grid = Grid(placements="pre", depth=1, width=8, task="copy", steps=6, lr=1e-2, framework=framework)
    (entry,) = grid.entries
    loss = held_out(entry.spec, trained(entry), entry.of.validation())
    assert loss == pytest.approx(run(entry).loss, rel=1e-5)


def nm_spec(placement: str) -> Any:
    return Grid(placements=placement, depth=3, width=8, task="copy", init="xavier").entries[0].spec


# ---- the reference tables


def test_the_reference_tables_are_whole() -> None:
    assert {(depth, lr) for depth, lr in COPY} == {(depth, lr) for depth in (6, 18, 36) for lr in (1e-3, 5e-3)}
    assert all(set(cells) == {(name, w) for name in ("post", "pre") for w in (0, 75)} for cells in COPY.values())
    assert COPY[18, 1e-3]["post", 0][:3] == WEIGHTS["xavier_qkv", 1e-3]["post"]
    assert len(RANKING) == 11
    assert set(RANKING) <= set(SCHEMES)
    assert all(len(losses) == 2 for cells in RANKING.values() for losses in cells.values())


def test_the_ranking_trains_each_scheme_with_its_own_factor() -> None:
    grid = ranking()
    assert grid.size == 11 * 4 * 2 * 2
    inits = {one.name: one.init for one in grid.lanes}
    assert {name for name, init in inits.items() if init == "paper"} == {"DeepNorm", "Pre-LN, scaled weights"}
    assert lane("Keel").placement == SCHEMES["Keel"]
    spec = grid.entries[0].spec
    assert (spec.layers, spec.width, spec.hidden, spec.heads, spec.bias, spec.causal) == (12, 64, 128, 2, False, True)
