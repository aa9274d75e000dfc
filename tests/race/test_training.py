"""The trainers of both frameworks: the update, what is seen on the way, stopping and going on."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normula.data import TASKS, task
from normula.framework import room
from normula.oracle import weights
from normula.race import Entry, Job, run_all
from normula.race.trial import advance
from normula.record import Training
from normula.spec import Recipe, Spec
from tests.cases import LAYER, random_weights
from tests.race.training import FRAMEWORKS, by_hand, doubles, model_with, multiplies, torch_gradients, trained

pytestmark = pytest.mark.contract

both = pytest.mark.parametrize("framework", FRAMEWORKS)

COPY = task("copy")


def spec(**fields: Any) -> Spec:
    sizes = dict(placement="pre", layers=2, width=8, heads=2, hidden=12)
    return COPY.spec(**(sizes | fields))


def plain(training: Training) -> Training:
    """A training without what it took."""
    return replace(training, seconds=0.0, state=None)


STEPS = 6


@cache
def whole(framework: str) -> tuple[Spec, Recipe, dict[str, Any], Training]:
    one = spec(dropout=0.3)
    recipe = Recipe(steps=STEPS, lr=1e-2, batch=4, warmup=2, shape="cosine", optimiser="adamw", weight_decay=0.1)
    options = dict(looks=(0, 3, STEPS - 1))
    return one, recipe, options, room(framework).train(one, COPY, recipe, **options)


RECIPES = {
    "Adam, a warmup, decayed": dict(warmup=3, weight_decay=0.1),
    "AdamW, cosine, clipped": dict(
        optimiser="adamw", shape="cosine", weight_decay=0.1, clip=0.5, beta1=0.8, beta2=0.95
    ),
    "SGD, linear, decayed and clipped": dict(optimiser="sgd", lr=0.3, shape="linear", weight_decay=0.2, clip=0.1),
    "SGD, inverse root": dict(optimiser="sgd", lr=0.3, shape="rsqrt", warmup=2),
}


@both
@pytest.mark.parametrize("name", RECIPES)
def test_updates_are_those_written_out_in_numpy(name: str, framework: str) -> None:
    recipe = Recipe(**(dict(steps=6, lr=1e-2, batch=4, seed=3) | RECIPES[name]))
    one = spec(placement="x + gain(0.5) * f(norm(x))", final="norm(x)")
    start = random_weights(one)
    with doubles():
        found, seen = trained(framework, model_with(framework, one, start), COPY, recipe)
        curve, last = by_hand(one, start, COPY, recipe, multiplies)
    np.testing.assert_allclose(found.curve, curve, rtol=1e-10)
    assert seen[-1].keys() == last.keys()
    for key, array in last.items():
        np.testing.assert_allclose(seen[-1][key], array, rtol=1e-7, atol=1e-9, err_msg=key)


DECAYED = {
    "inner norms and gains": dict(placement=f"{LAYER}; x = gain(0.3) * x + gain(0.2, 'channel') * mlp(x)"),
    "a tied head": dict(tied=True),
    "experts, gated": dict(
        placement="x = x + attn(norm(x)); x = x + moe(norm(x))", experts=3, gated=True, activation="silu"
    ),
    "relative positions": dict(positions="relative", kv_heads=1),
    "an operator with fixed weights": dict(placement="hyper-connections"),
    "an operator with matrices": dict(placement="mhc"),
}


@both
@pytest.mark.parametrize("name", [*DECAYED, "values", "an encoder"])
def test_matrices_shrink_and_nothing_else_does(name: str, framework: str) -> None:
    """With a tiny rate the gradient does nothing, and the decay takes 4 % of what it is for."""
    data = task({"values": "digits", "an encoder": "translate"}.get(name, "copy"))
    one = data.spec(**(dict(placement="pre", layers=2, width=8, heads=2, hidden=12) | DECAYED.get(name, {})))
    recipe = Recipe(steps=1, lr=1e-6, weight_decay=4e4, batch=2, optimiser="sgd")
    start = random_weights(one)
    _, (before, after) = trained(framework, model_with(framework, one, start), data, recipe)
    factors = {key: 0.96 if multiplies(key) else 1.0 for key in before}
    assert 0.96 in factors.values()
    for key, array in before.items():
        np.testing.assert_allclose(after[key], factors[key] * array, rtol=1e-3, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("name", [name for name in TASKS if not name.startswith("hf")])
def test_the_frameworks_learn_every_task_alike(name: str) -> None:
    data = task(name)
    one = data.spec(placement="pre", layers=1, width=16, heads=2)
    recipe = Recipe(steps=4, lr=1e-2, batch=4, seed=1)
    looks = (0, 2) if name in ("translate", "digits") else ()
    first, second = (room(framework).train(one, data, recipe, looks=looks) for framework in FRAMEWORKS)
    np.testing.assert_allclose(first.curve, second.curve, rtol=1e-4)
    for a, b in zip(first.evaluations, second.evaluations, strict=True):
        assert (a.step, a.loss, a.accuracy) == (
            b.step,
            pytest.approx(b.loss, rel=1e-3),
            pytest.approx(b.accuracy, abs=0.02),
        )
    for x, y in zip(first.snapshots, second.snapshots, strict=True):
        assert x.step == y.step
        np.testing.assert_allclose(x.gradients, y.gradients, rtol=1e-2)
        np.testing.assert_allclose(x.rms, y.rms, rtol=1e-3)
    assert first.tokens == second.tokens


@both
@pytest.mark.parametrize("step", [0, 3])
def test_a_snapshot_is_the_gradient_and_the_stream_at_that_update(framework: str, step: int) -> None:
    recipe = Recipe(steps=4, lr=1e-2, batch=4, clip=0.01)
    one = spec(placement="post", layers=3)
    found, seen = trained(framework, one, COPY, recipe, looks=[step])
    _, gradients, stream = torch_gradients(one, seen[step], next(COPY.batches(0, 4, first=step)))
    [snapshot] = found.snapshots
    assert snapshot.step == step

    def norm(prefix: str) -> float:
        return math.sqrt(
            sum(float((g.astype(float) ** 2).sum()) for name, g in gradients.items() if name.startswith(prefix))
        )

    assert snapshot.gradient == pytest.approx(norm(""), rel=1e-4)
    assert snapshot.gradients == pytest.approx([norm(f"layers.{i}.") for i in range(3)], rel=1e-4)
    assert snapshot.rms == pytest.approx([math.sqrt((x.astype(float) ** 2).mean()) for x in stream], rel=1e-4)


@both
def test_the_stream_of_a_snapshot_has_no_dropout(framework: str) -> None:
    one, _, _, found = whole(framework)
    _, _, stream = torch_gradients(one, weights(one), next(COPY.batches(0, 4)))
    assert found.snapshots[0].rms == pytest.approx([math.sqrt((x.astype(float) ** 2).mean()) for x in stream], rel=1e-4)


@both
def test_looking_does_not_change_a_training(framework: str) -> None:
    one, recipe, _, looked = whole(framework)
    alone = room(framework).train(one, COPY, recipe)
    assert looked.curve == alone.curve
    assert looked.evaluations[-1] == alone.evaluations[-1]
    assert [one.step for one in looked.evaluations] == [1, 4, STEPS]
    assert [one.step for one in looked.snapshots] == [0, 3, STEPS - 1]


@both
@pytest.mark.property
@settings(max_examples=12)
@given(stops=st.lists(st.integers(0, STEPS), max_size=2))
def test_a_training_that_is_stopped_and_gone_on_with_is_one_that_never_was(framework: str, stops: list[int]) -> None:
    one, recipe, options, expected = whole(framework)
    state = None
    for stop in sorted(stops):
        part = room(framework).train(one, COPY, recipe, state=state, until=stop, **options)
        assert part.curve == expected.curve[:stop]
        assert part.evaluations[-1].step == stop
        if part.state is None:
            assert stop == STEPS
            assert plain(part) == plain(expected)
            return
        state = part.state
    assert plain(room(framework).train(one, COPY, recipe, state=state, **options)) == plain(expected)


@both
def test_it_goes_on_in_another_process(framework: str) -> None:
    one, recipe, _, _ = whole(framework)
    entry = Entry(spec=one, recipe=recipe, task="copy", framework=framework)
    half, state = advance(entry, until=2)
    assert len(half.curve) == 2
    [(_, (end, left))] = run_all([Job(advance, (entry, state))], workers=1)
    assert left is None
    again = replace(end, seconds=0.0, tokens_per_second=0.0, memory=0)
    assert again == replace(advance(entry)[0], seconds=0.0, tokens_per_second=0.0, memory=0)


@both
def test_every_state_that_is_saved_leads_to_the_same_end(framework: str) -> None:
    one, recipe, options, expected = whole(framework)
    states: list[bytes] = []
    found = room(framework).train(one, COPY, recipe, save=states.append, save_seconds=0.0, **options)
    assert plain(found) == plain(expected)
    assert len(states) == STEPS - 1  # at the end there is nothing left to do
    for state in states:
        assert plain(room(framework).train(one, COPY, recipe, state=state, **options)) == plain(expected)


@both
def test_a_limit_of_time_stops_it_and_leaves_a_state(framework: str) -> None:
    one, recipe, options, expected = whole(framework)
    none = room(framework).train(one, COPY, recipe, seconds=0.0, **options)
    assert none.curve == ()
    assert none.evaluations[-1].step == 0
    first = room(framework).train(one, COPY, recipe, seconds=1e-9, state=none.state, **options)
    assert len(first.curve) == 1
    still = room(framework).train(one, COPY, recipe, seconds=1e-9, state=first.state, **options)
    assert still.curve == first.curve
    assert plain(room(framework).train(one, COPY, recipe, state=still.state, **options)) == plain(expected)


@both
@pytest.mark.negative
def test_a_state_of_another_recipe_is_refused(framework: str) -> None:
    one, recipe, _, _ = whole(framework)
    state = room(framework).train(one, COPY, recipe, until=1).state
    with pytest.raises(ValueError, match=r"a training with lr=0.01, not 0.02; go on with the recipe"):
        room(framework).train(one, COPY, replace(recipe, lr=2e-2), state=state)


@both
@pytest.mark.negative
def test_a_loss_that_is_not_finite_ends_it(framework: str) -> None:
    recipe = Recipe(steps=30, lr=1e30, optimiser="sgd", batch=4)
    found, seen = trained(framework, spec(placement="none", layers=4), COPY, recipe, looks=range(30))
    assert 1 < len(found.curve) < 30
    assert not math.isfinite(found.curve[-1])
    assert all(map(math.isfinite, found.curve[:-1]))
    assert math.isnan(found.loss)
    assert math.isnan(found.accuracy)
    assert found.state is None
    assert len(seen) == len(found.curve)  # before each update, and no end
    assert [one.step for one in found.snapshots] == list(range(len(found.curve) - 1))


@both
def test_bfloat16_is_close_to_float32_and_keeps_the_weights(framework: str) -> None:
    """Eight bits of mantissa: losses to a few hundredths."""
    recipe = Recipe(steps=12, lr=1e-2, warmup=3)
    exact = room(framework).train(spec(), COPY, recipe)
    rounded, seen = trained(framework, spec(), COPY, replace(recipe, dtype="bfloat16"))
    assert rounded.curve != exact.curve
    np.testing.assert_allclose(rounded.curve, exact.curve, rtol=0.03)
    assert rounded.loss == pytest.approx(exact.loss, rel=0.03)
    assert {str(array.dtype) for array in seen[-1].values()} == {"float32"}
    assert any((array != _rounded(array)).any() for array in seen[-1].values())


def _rounded(array: np.ndarray) -> np.ndarray:
    """What is left of float32 in the bits of bfloat16."""
    return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@both
def test_the_held_out_data_are_scored_as_they_are_at_the_end(framework: str) -> None:
    one, recipe, _, _ = whole(framework)
    found, seen = trained(framework, one, COPY, recipe)
    held = COPY.validation()
    model = model_with("torch", one, seen[-1]).eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(held.inputs)).numpy().astype(float)
    picked = np.take_along_axis(logits, held.targets[..., None], axis=-1)[..., 0]
    assert found.loss == pytest.approx((np.log(np.exp(logits).sum(-1)) - picked).mean(), rel=1e-5)
    assert found.accuracy == pytest.approx((logits.argmax(-1) == held.targets).mean(), abs=1e-6)


@both
@pytest.mark.parametrize(("name", "tokens"), [("copy", 8), ("translate", 9 + 9), ("digits", 16)])
def test_tokens_are_those_of_inputs_and_source(framework: str, name: str, tokens: int) -> None:
    data = task(name)
    one = data.spec(placement="pre", layers=1, width=8, heads=2)
    assert room(framework).train(one, data, Recipe(steps=3, lr=1e-3, batch=5)).tokens == 3 * 5 * tokens


@both
@pytest.mark.parametrize("name", ["copy", "translate"])
def test_a_formula_that_reads_the_step_is_told_it_on_both_sides(framework: str, name: str) -> None:
    """The third update is that of the formula with 2 in its place, the end that of the formula with 3."""
    data, recipe = task(name), Recipe(steps=3, lr=1e-30, batch=4)

    def run(step: str) -> Training:
        one = data.spec(placement=f"x + (1 + {step}) / 2 * f(norm(x))", final="norm(x)", layers=2, width=8, heads=2)
        return room(framework).train(one, data, recipe)

    found = run("step")
    assert found.curve[2] == pytest.approx(run("2").curve[2], rel=1e-5)
    assert found.loss == pytest.approx(run("3").loss, rel=1e-5)


def test_weights_start_as_the_spec_says() -> None:
    one = spec(init="normal", seed=4)
    for framework in FRAMEWORKS:
        _, seen = trained(framework, one, COPY, Recipe(steps=1, lr=1e-3))
        for name, array in weights(one).items():
            np.testing.assert_array_equal(seen[0][name], array.astype(np.float32))
