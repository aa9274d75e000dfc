"""A training run: its identity, and that it repeats bit for bit."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normula.race import Entry, Job, run, run_all
from normula.race.outcome import outcome
from normula.race.trial import advance, at_hand, failure
from normula.record import Trial
from normula.spec import Recipe, Spec
from normula.torch import build
from tests.cases import small

RECIPE = tuple(field.name for field in dataclasses.fields(Recipe))


def entry(**fields: Any) -> Entry:
    spec = fields.pop("spec", None) or small("pre", vocab=16, context=8)
    how = dict(steps=5, lr=1e-2, batch=4, seed=spec.seed) | {
        name: fields.pop(name) for name in RECIPE if name in fields
    }
    return Entry(**(dict(spec=spec, recipe=Recipe(**how), task="copy") | fields))


def spec_with(**fields: Any) -> Spec:
    return dataclasses.replace(small("pre", vocab=16, context=8), **fields)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, " * 50)
    return path


CHANGES = {
    "placement": dict(spec=spec_with(placement="post")),
    "layers": dict(spec=spec_with(layers=3)),
    "width": dict(spec=spec_with(width=16)),
    "heads": dict(spec=spec_with(heads=4)),
    "hidden": dict(spec=spec_with(hidden=13)),
    "norm": dict(spec=spec_with(norm="rmsnorm")),
    "eps": dict(spec=spec_with(eps=1e-6)),
    "activation": dict(spec=spec_with(activation="relu")),
    "sublayers": dict(spec=spec_with(sublayers=("mlp",))),
    "final": dict(spec=spec_with(final="x")),
    "embed": dict(spec=spec_with(embed="norm(x)")),
    "causal": dict(spec=spec_with(causal=True)),
    "context": dict(spec=spec_with(context=9)),
    "bias": dict(spec=spec_with(bias=False)),
    "init": dict(spec=spec_with(init="normal")),
    "dropout": dict(spec=spec_with(dropout=0.1)),
    "seed": dict(spec=spec_with(seed=1), seed=0),
    "steps": dict(steps=6),
    "lr": dict(lr=1e-3),
    "warmup": dict(warmup=1),
    "batch": dict(batch=5),
    "optimiser": dict(optimiser="sgd"),
    "shape": dict(shape="cosine"),
    "beta1": dict(beta1=0.8),
    "beta2": dict(beta2=0.95),
    "weight_decay": dict(weight_decay=0.1),
    "clip": dict(clip=1.0),
    "dtype": dict(dtype="bfloat16"),
    "order of the data": dict(seed=1),
    "device": dict(device="cuda"),
    "a model of one's own": dict(model="package.module:function"),
    "framework": dict(framework="linen"),
}


def test_the_identity_changes_with_everything_that_can_change_the_result(text: Path) -> None:
    found = {"as it is": entry().identity, "task": entry(task="text", data=str(text)).identity}
    found |= {name: entry(**change).identity for name, change in CHANGES.items()}
    assert len(set(found.values())) == len(found)
    assert entry().identity == found["as it is"]


def test_the_identity_changes_with_the_text_and_not_with_where_it_lies(text: Path, tmp_path: Path) -> None:
    before = entry(task="text", data=str(text)).identity
    elsewhere = tmp_path / "folder"
    elsewhere.mkdir()
    copy = elsewhere / "other.txt"
    copy.write_bytes(text.read_bytes())
    assert entry(task="text", data=str(copy)).identity == before
    text.write_text("to be or not to bE, " * 50)
    at_hand.cache_clear()
    assert entry(task="text", data=str(text)).identity != before
    assert entry(task="text").identity != before


def test_the_identity_does_not_change_with_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = entry().identity
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    torch.manual_seed(7)
    assert entry().identity == before
    (_, other), *_ = run_all([Job(getattr, (entry(), "identity"))], workers=1)
    assert other == before


def repeated(one: Trial) -> dict[str, Any]:
    """All of a trial but what it took."""
    data = dataclasses.asdict(one)
    return {name: value for name, value in data.items() if name not in ("seconds", "tokens_per_second", "memory")}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_run_repeats_bit_for_bit_here_and_in_processes_of_its_own(dropout: float) -> None:
    one = entry(spec=spec_with(dropout=dropout))
    np.random.seed(1)  # the global generators are what must not matter
    torch.manual_seed(1)
    first = run(one)
    assert repeated(run(one)) == repeated(first)
    for _, other in run_all([Job(run, (one,)), Job(run, (one,))], workers=2):
        assert repeated(other) == repeated(first)
    assert len(first.curve) == 5
    assert first.identity == one.identity


def test_the_curve_is_that_of_adam_written_out() -> None:
    """With a warmup over three updates and the rate constant afterwards."""
    one = entry(warmup=3)
    model = build(one.spec)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.999), eps=1e-8)
    batches = one.of.batches(one.spec.seed, one.recipe.batch)
    curve = []
    for rate in (1e-2 / 3, 2e-2 / 3, 1e-2, 1e-2, 1e-2):
        batch = next(batches)
        loss = F.cross_entropy(
            model(torch.from_numpy(batch.inputs)).flatten(0, 1), torch.from_numpy(batch.targets).flatten()
        )
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    validation = one.of.validation()
    with torch.no_grad():
        end = F.cross_entropy(
            model(torch.from_numpy(validation.inputs)).flatten(0, 1), torch.from_numpy(validation.targets).flatten()
        )

    found = run(one)

    assert found.curve == pytest.approx(curve, rel=1e-5)
    assert found.loss == pytest.approx(end.item(), rel=1e-5)


def test_every_placement_sees_the_same_data_and_starts_from_the_same_shared_weights() -> None:
    first, second = (build(spec_with(placement=name)).state_dict() for name in ("pre", "post"))
    shared = [name for name in first if name in second]
    assert len(shared) > 20
    assert all(torch.equal(first[name], second[name]) for name in shared)
    batches = [next(entry(spec=spec_with(placement=name)).of.batches(0, 4)).inputs for name in ("pre", "post")]
    np.testing.assert_array_equal(*batches)


def test_a_trial_says_what_was_run_and_what_it_came_to() -> None:
    found = run(entry(spec=spec_with(placement="post", init="normal", seed=3), warmup=2))
    assert (found.name, found.init, found.lr, found.warmup, found.seed) == ("post", "normal", 1e-2, 2, 3)
    assert (found.layers, found.width, found.norm) == (2, 8, "layernorm")
    assert (found.batch, found.optimiser, found.steps) == (4, "adam", 5)
    assert found.stuck_loss == math.log(16)
    assert found.outcome == outcome(found.curve, found.loss, math.log(16))
    assert found.seconds > 0
    assert found.tokens_per_second == pytest.approx(5 * 4 * 8 / found.seconds)


def test_a_trial_is_looked_at_five_times() -> None:
    one = entry(steps=9)
    found = run(one)
    assert [snapshot.step for snapshot in found.snapshots] == [0, 2, 4, 6, 8]
    assert [evaluation.step for evaluation in found.evaluations] == [1, 3, 5, 7, 9]
    assert (found.loss, found.accuracy) == (found.evaluations[-1].loss, found.evaluations[-1].accuracy)
    assert all(len(snapshot.gradients) == 2 and len(snapshot.rms) == 3 for snapshot in found.snapshots)
    assert entry(steps=1).looks == (0,)


def test_a_part_of_a_run_is_a_trial_too() -> None:
    one = entry(steps=9)
    part, state = advance(one, until=4)
    assert (part.steps, len(part.curve), part.evaluations[-1].step) == (9, 4, 4)
    assert part.curve == run(one).curve[:4]
    end, left = advance(one, state)
    assert left is None
    assert repeated(end) == repeated(run(one))


def test_what_could_not_be_run_is_a_trial_too() -> None:
    found = failure(entry(), "there is no memory left")
    assert (found.outcome, found.note, found.curve) == ("failed", "there is no memory left", ())
    assert math.isnan(found.loss)
    assert (found.identity, found.tokens_per_second) == (entry().identity, 0.0)


def test_a_run_learns_the_copy_task() -> None:
    found = run(entry(steps=60, lr=2e-2, batch=16))
    assert found.outcome == "learned"
    assert found.loss < found.curve[0] / 2


@pytest.mark.negative
def test_a_run_whose_loss_is_not_finite_ends_there_and_has_diverged() -> None:
    found = run(entry(spec=spec_with(placement="none", layers=4), lr=1e30, steps=50))
    assert found.outcome == "diverged"
    assert math.isnan(found.loss)
    assert len(found.curve) < 50
    assert not math.isfinite(found.curve[-1])
    assert all(math.isfinite(value) for value in found.curve[:-1])
