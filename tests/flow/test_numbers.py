"""Every number of a pass against the oracle, and against stacks written in plain torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from normula import oracle
from normula.oracle.norms import Array
from normula.record import Pass
from normula.spec import Spec
from normula.torch import Model, build
from normula.torch.measure import measure
from tests.cases import PLACEMENTS, needs_both_sides, random_inputs, random_weights, small
from tests.flow.plain import STEPS, length, rms, run, step_cosine, token_cosine
from tests.near import FLOAT64, assert_gradients_near

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("float64")]

ONE_STREAM = [p for p in PLACEMENTS if PLACEMENTS[p].operator is None]
ONE_STACK = [name for name in ONE_STREAM if not needs_both_sides(PLACEMENTS[name])]
INPUTS = {"vectors": {}, "ids": {"vocab": 5, "causal": True}, "classes": {"classes": 3}}


def near(value: float) -> object:
    return pytest.approx(value, rel=FLOAT64, abs=FLOAT64)


def model_of(spec: Spec, arrays: dict[str, Array]) -> Model:
    model = build(spec)
    model.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    return model


def direction_like(output: Tensor | Array) -> Array:
    return np.random.default_rng(7).standard_normal(output.shape)


def measured(spec: Spec, arrays: dict[str, Array], inputs: Array) -> tuple[Pass, Array, Tensor]:
    """A pass under a random direction, the direction, and the output that the open run sent into the probe."""
    seen = []

    def probe(output: Tensor) -> Tensor:
        seen.append(output.detach())
        return (output * torch.tensor(direction_like(output))).sum()

    one = measure(model_of(spec, arrays), torch.tensor(inputs), probe, seed=0)
    return one, direction_like(seen[0]), seen[0]


@pytest.mark.parametrize("name", ONE_STACK)
@pytest.mark.parametrize("kind", INPUTS)
def test_the_open_run_is_the_model_and_its_gradients_are_the_oracles(name: str, kind: str) -> None:
    spec = small(PLACEMENTS[name], **INPUTS[kind])
    arrays, inputs = random_weights(spec), random_inputs(spec)
    truth = oracle.run(spec, arrays, inputs)
    direction = direction_like(truth.output)
    input_gradient, gradients = truth.pullback(direction)

    one, _, output = measured(spec, arrays, inputs)

    with torch.no_grad():
        assert torch.equal(output, model_of(spec, arrays)(torch.tensor(inputs)))
    assert one.output_gradient == near(length(direction))
    assert one.input_gradient == near(length(input_gradient))
    assert_gradients_near(
        {weight.name: np.array(weight.gradient) for weight in one.weights},
        {weight: np.array(length(gradient)) for weight, gradient in gradients.items()},
        FLOAT64,
    )
    assert {w.name: w.norm for w in one.weights} == {n: near(length(a)) for n, a in arrays.items()}


@pytest.mark.parametrize("name", ONE_STACK)
def test_sizes_and_cosines_are_the_oracles(name: str) -> None:
    spec = small(PLACEMENTS[name], layers=3)
    arrays, inputs = random_weights(spec), random_inputs(spec)
    stream = oracle.run(spec, arrays, inputs).stream

    one, _, _ = measured(spec, arrays, inputs)

    parts = len(one.steps) // (len(stream) - 1)  # a formula of a whole layer may give x several values
    for place, (before, after) in enumerate(pairwise(stream)):
        first, *_, last = one.steps[place * parts], *one.steps[place * parts : (place + 1) * parts]
        assert first.rms_before == near(rms(before))
        assert last.rms_after == near(rms(after))
        assert last.token_cosine == near(token_cosine(after))
        assert last.largest == near(np.abs(after).max())
        assert parts > 1 or last.step_cosine == near(step_cosine(before, after))


@pytest.mark.parametrize("name", STEPS)
def test_branches_and_gradients_are_those_of_the_stack_in_plain_torch(name: str) -> None:
    spec = small(PLACEMENTS[name], layers=3)
    arrays, inputs = random_weights(spec), random_inputs(spec)
    weights = {n: torch.tensor(array, requires_grad=True) for n, array in arrays.items()}
    x, held_x = (torch.tensor(inputs, requires_grad=True) for _ in range(2))
    points, output = run(spec, name, weights, x)
    held, held_output = run(spec, name, weights, held_x, hold=True)
    for end in (output, held_output):
        (end * torch.tensor(direction_like(end))).sum().backward()

    one, _, _ = measured(spec, arrays, inputs)

    assert [(s.layer, s.name) for s in one.steps] == [(p.layer, p.name) for p in points]
    for step, point, free in zip(one.steps, points, held, strict=True):
        assert step.branch_rms == near(rms(point.branch))
        assert step.skip_rms == near(rms(point.skip))
        assert step.ratio == near(rms(point.branch) / rms(point.skip))
        assert step.gradient == near(length(point.before.grad))
        assert step.skip_gradient == near(length(free.before.grad))
    assert one.input_gradient == near(length(x.grad))
    assert one.skip_gradient == near(length(held_x.grad))


def test_branches_that_start_at_zero_add_nothing() -> None:
    spec = small("rezero")
    one, _, _ = measured(spec, oracle.weights(spec), random_inputs(spec))
    assert [step.branch_rms for step in one.steps] == [0.0] * 4
    assert [step.ratio for step in one.steps] == [0.0] * 4
    assert one.steps[-1].rms_after == one.steps[0].rms_before


def test_the_branch_of_pre_ln_is_all_that_is_added() -> None:
    spec = small("pre", layers=3)
    model = model_of(spec, random_weights(spec))
    kept: dict[str, Tensor] = {}
    for layer in range(3):
        for word in ("attn", "mlp"):
            sublayer = model.get_submodule(f"layers.{layer}.{word}.f")
            sublayer.register_forward_hook(lambda m, i, y, at=(layer + 1, word): kept.setdefault(at, y.detach()))
    stream = oracle.run(spec, random_weights(spec), random_inputs(spec)).stream

    one = measure(model, torch.tensor(random_inputs(spec)), torch.sum, seed=0)

    for place, step in enumerate(one.steps):
        branch = kept[step.layer, step.name].numpy()
        assert step.branch_rms == near(rms(branch))
        assert np.abs(stream[place] + branch - stream[place + 1]).max() < 1e-6


@pytest.mark.parametrize("text", ["pre", "post", "deepnorm", "lns"])
def test_a_step_and_the_layer_that_it_makes_flow_alike(text: str) -> None:
    step = small(text)
    layer = small(PLACEMENTS[text].formula.layer(), final=step.placed.final)
    arrays = random_weights(step)
    renamed = dict(zip(build(layer).state_dict(), arrays.values(), strict=True))

    ours, _, _ = measured(step, arrays, random_inputs(step))
    theirs, _, _ = measured(layer, renamed, random_inputs(step))

    assert [s.name for s in theirs.steps] == ["1", "2", "1", "2"]
    for a, b in zip(ours.steps, theirs.steps, strict=True):
        for number in ("rms_before", "rms_after", "branch_rms", "skip_rms", "gradient", "skip_gradient"):
            assert getattr(a, number) == near(getattr(b, number)), number


def test_padded_tokens_are_not_seen() -> None:
    spec = small("pre", classes=3)
    arrays, inputs = random_weights(spec), random_inputs(spec)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    truth = oracle.run(spec, arrays, inputs, mask)
    direction = direction_like(truth.output)
    input_gradient, _ = truth.pullback(direction)

    one = measure(
        model_of(spec, arrays),
        torch.tensor(inputs),
        lambda output: (output * torch.tensor(direction)).sum(),
        seed=0,
        mask=torch.tensor(mask),
    )

    assert one.input_gradient == near(length(input_gradient))


def test_a_formula_without_a_skip_carries_nothing_on_it() -> None:
    spec = small("f(x)")
    one, _, _ = measured(spec, random_weights(spec), random_inputs(spec))
    assert one.skip_gradient == 0.0
    assert one.input_gradient > 0
    assert [(s.skip_rms, s.ratio) for s in one.steps] == [(0.0, float("inf"))] * 4
