"""The main job from end to end, at a size that runs in seconds."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from normula.catalog import placement
from normula.compare import compare
from normula.data import corpus, task
from normula.flow import depth_point, flow, popular
from normula.race import effects
from normula.record import Comparison, from_json, to_json
from normula.spec import NormulaWarning, Spec

PLACEMENTS = ("pre", "post", "x + norm(f(x, qk=norm))", "x = x + norm(attn(x)) + mlp(norm(x))")
TINY: dict[str, Any] = dict(
    layers=2,
    width=8,
    heads=2,
    steps=4,
    lr=(1e-3,),
    warmup=(0,),
    init=("xavier",),
    seeds=1,
    depths=(1, 2),
    flow_width=8,
    flow_steps=1,
    workers=2,
    context=8,
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("she sells sea shells on the sea shore. " * 20)
    return path


@pytest.fixture(scope="module")
def reports() -> list[tuple[int, int, str]]:
    return []


@pytest.fixture(scope="module")
def found(text: Path, reports: list[tuple[int, int, str]]) -> Comparison:
    return compare(PLACEMENTS, data=str(text), report=lambda *report: reports.append(report), **TINY)


def test_every_placement_is_drawn_measured_and_trained(found: Comparison) -> None:
    names = [one.name for one in found.contestants]
    assert names[:2] == ["pre", "post"]
    assert names == [one.name for one in found.flows]
    assert sorted(one.name for one in found.trials) == sorted(names)
    assert {(one.name, one.depth) for one in found.depths} == {(name, depth) for name in names for depth in (1, 2)}
    assert found.planned == len(found.trials) == 4
    assert all(one.svg.startswith("<svg") for one in found.contestants)


def test_the_popular_figure_is_drawn_both_ways_once_a_depth_where_it_can_be(found: Comparison) -> None:
    """Its blocks are one linear map: a formula with attention inside, or of a whole layer, is not in it."""
    points = [(point.probe, point.name, point.depth) for point in found.popular]
    assert points == [
        (probe, name, depth) for probe in ("random", "sum") for name in ("post", "pre") for depth in (1, 2)
    ]
    assert set(popular(placement("post"), (2,))) <= set(found.popular)


def test_contestants_have_their_title_skip_words_and_what_the_papers_predict(found: Comparison) -> None:
    pre, post, other, layer = found.contestants
    assert (pre.title, pre.skip) == ("Pre-LN", "1")
    assert (post.title, post.skip) == ("Post-LN", "J[norm](x + f(x))")
    assert pre.predictions
    assert post.predictions
    assert other.name == other.placement["formula"] == "x + norm(f(x, qk=norm))"
    assert "norm" in layer.words


def test_the_data_are_those_of_the_file(found: Comparison, text: Path) -> None:
    data = corpus(text, 8)
    assert found.data["name"] == "text.txt"
    assert found.data["digest"] == data.digest
    assert found.data["stuck_loss"] == found.trials[0].stuck_loss
    assert found.settings["data"] == str(text)


def test_the_numbers_are_those_that_flow_and_race_give_by_themselves(found: Comparison, text: Path) -> None:
    spec = Spec(placement="post", layers=2, width=8, heads=4, activation="relu", causal=True)
    assert depth_point(spec, seeds=2) in found.depths
    spec = Spec(
        placement="post",
        layers=2,
        width=8,
        heads=2,
        activation="relu",
        causal=True,
        vocab=256,
        context=8,
        init="xavier",
    )
    direct = flow(spec, seeds=2, probe="loss", task=task("text", str(text), 8), steps=1, batch=8)
    assert repr(found.flows[1].passes) == repr(direct.passes)
    assert found.shares == effects(found.trials)


def test_the_record_comes_back_from_json(found: Comparison) -> None:
    again = from_json(Comparison, to_json(found))
    assert to_json(again) == to_json(found)
    assert repr(again.flows) == repr(found.flows)
    assert again.trials == found.trials
    assert again.verdict == found.verdict


def test_the_progress_counts_every_job(found: Comparison, reports: list[tuple[int, int, str]]) -> None:
    jobs = 4 + 2 + 4 * 2 + 4
    assert [done for done, _, _ in reports] == list(range(1, jobs + 1))
    assert {of for _, of, _ in reports} == {jobs}
    said = " ".join(what for _, _, what in reports)
    assert "flow of post" in said
    assert "post at depth 2" in said
    assert "post, xavier, rate 0.001, warmup 0:" in said


def test_the_verdict_speaks_of_all(found: Comparison) -> None:
    assert not any("Interrupted" in statement.text for statement in found.verdict)
    words = " ".join(statement.text for statement in found.verdict)
    for one in found.contestants:
        assert one.title in words
    assert found.verdict[0].kind == "headline"
    assert found.verdict[-1].kind == "caution"


def test_a_comparison_repeats_bit_for_bit(found: Comparison, text: Path) -> None:
    again = compare(("pre", "post"), data=str(text), **TINY)
    curves = {trial.name: (trial.curve, trial.loss, trial.identity) for trial in found.trials}
    assert {trial.name: (trial.curve, trial.loss, trial.identity) for trial in again.trials}.items() <= curves.items()
    assert set(map(repr, again.depths)) <= set(map(repr, found.depths))


@pytest.mark.parametrize("jobs", [0, 7])
def test_an_interrupt_keeps_what_was_finished_and_says_so(text: Path, jobs: int) -> None:
    def stop(done: int, of: int, what: str) -> None:
        if done > jobs:
            raise KeyboardInterrupt

    found = compare(("pre", "post"), data=str(text), report=stop, **TINY | dict(steps=10**6, workers=1))
    popular_jobs = len({point.name for point in found.popular})
    assert len(found.flows) + popular_jobs + len(found.depths) + len(found.trials) == jobs + 1
    assert found.planned == 2
    assert found.verdict[0].text.startswith(f"Interrupted: {len(found.trials)} of 2 runs were finished")
    assert math.isnan(found.data["stuck_loss"])
    assert to_json(from_json(Comparison, to_json(found))) == to_json(found)


def end_the_process(entry: object) -> None:
    """What a machine without memory does to a run."""
    os._exit(9)


def test_a_process_that_dies_loses_no_finished_run(monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    monkeypatch.setattr(sys.modules["normula.compare.compare"], "run", end_the_process)
    with pytest.warns(NormulaWarning, match="what was finished is reported"):
        found = compare(["pre"], data=str(text), **TINY)
    assert found.depths  # what comes before the runs
    assert not found.trials
    assert "0 of" in found.verdict[0].text
