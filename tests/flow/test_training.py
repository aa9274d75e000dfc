"""Flow over the first training steps: a collapse that initialisation does not show."""

import math
import re

import pytest
import torch
import torch.nn.functional as F

from normula.data import Batch, Copy, task
from normula.flow import flow
from normula.flow.findings import findings
from normula.record import Finding, Flow
from normula.spec import Spec
from normula.torch import build
from normula.torch.batch import loss
from tests.cases import small
from tests.flow.synthetic import one_pass, step

DEEP = dict(layers=18, width=32, heads=2, activation="relu", init="xavier")
"""The copy task under Adam at 5e-3, where a deep Post-LN stack makes all tokens one."""


def training(placement: str) -> Flow:
    return flow(Spec(placement=placement, **DEEP), seeds=1, task="copy", lr=5e-3, steps=10)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def post() -> Flow:
    return training("post")


def texts(found: Flow | tuple[Finding, ...]) -> dict[str, str]:
    return {finding.kind: finding.text for finding in (found.findings if isinstance(found, Flow) else found)}


def test_the_step_is_named_at_which_the_tokens_of_post_ln_are_one(post: Flow) -> None:
    text = texts(post)["token-collapse"]
    named = re.search(r"at training step (\d+) the mean cosine .* has reached 1", text)
    assert named
    assert "Representation collapse" in text
    assert int(named[1]) <= 5
    assert post.at(int(named[1]))[0].steps[-1].token_cosine > 1 - 1e-5


def test_the_gradient_is_said_to_have_vanished_afterwards_and_as_a_consequence(post: Flow) -> None:
    text = texts(post)["gradient-after-collapse"]
    assert "The gradient vanished afterwards, as a consequence" in text
    assert post.at(0)[0].input_gradient > 0.1
    assert post.at(10)[0].input_gradient < 1e-3
    assert "gradient-vanishes" not in texts(post)  # at initialisation it did not


@pytest.mark.negative
def test_pre_ln_under_the_same_settings_does_neither() -> None:
    found = training("pre")
    assert not {"token-collapse", "gradient-after-collapse"} & set(texts(found))
    assert found.at(10)[0].steps[-1].token_cosine < 0.9


@pytest.mark.negative
def test_at_initialisation_nothing_is_said_of_either() -> None:
    found = flow(Spec(placement="post", **DEEP), seeds=1, task="copy")  # type: ignore[arg-type]
    assert not {"token-collapse", "gradient-after-collapse", "gradient-vanishes"} & set(texts(found))
    assert "initialisation-only" in texts(found)


def test_the_notes_on_initialisation_are_left_out_where_training_was_watched(post: Flow) -> None:
    assert "initialisation-only" not in texts(post)


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        (0, (0,)),
        (1, (0, 1)),
        (20, (0, 1, 2, 5, 10, 20)),
        (3, (0, 1, 2, 3)),
        (120, (0, 1, 2, 5, 10, 20, 50, 100, 120)),
        ([4, 1], (1, 4)),
    ],
    ids=str,
)
def test_which_steps_are_looked_at(asked: int | list[int], steps: tuple[int, ...]) -> None:
    found = flow(small("pre", layers=1, context=4), seeds=[7], task=Copy(context=4), steps=asked)
    assert found.training_steps == steps
    assert [len(found.at(step)) for step in steps] == [1] * len(steps)


def test_a_pass_at_a_step_is_that_of_the_model_after_so_many_updates() -> None:
    """One plain gradient step by hand: what Adam makes of its first gradient is the rate times its sign."""
    spec = small("pre", vocab=16, context=8, seed=3)
    data = Copy()
    batch: Batch = next(data.batches(3, 16))
    model = build(spec)
    F.cross_entropy(
        model(torch.from_numpy(batch.inputs)).flatten(0, 1), torch.from_numpy(batch.targets).flatten()
    ).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-3 * parameter.grad / (parameter.grad.abs() + 1e-8)
    expected = {name: parameter.norm().item() for name, parameter in model.named_parameters()}

    found = flow(spec, seeds=[3], task="copy", steps=[1], lr=1e-3)

    assert {weight.name: weight.norm for weight in found.passes[0].weights} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("framework", ["torch", "flax"])
@pytest.mark.parametrize("name", ["recall", "digits"])
def test_the_loss_is_that_of_what_is_scored(name: str, framework: str) -> None:
    """Of some tokens, or of the class of a whole image."""
    if name == "digits":
        pytest.importorskip("sklearn")
    data = task(name)
    spec = data.spec(placement="pre", layers=1, width=8, heads=2)
    expected = loss(build(spec), next(iter(data.batches(1000, 4)))).item()
    found = flow(spec, seeds=1, task=name, probe="loss", batch=4, framework=framework)
    assert found.passes[0].loss == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_kept_where_it_is_the_probe() -> None:
    found = flow(small("pre", context=8), seeds=1, task="copy", probe="loss", steps=5, lr=1e-2)
    losses = [one.loss for one in found.passes]
    assert losses[0] == pytest.approx(math.log(16), abs=1.5)
    assert losses[-1] < losses[0]
    assert all(math.isnan(one.loss) for one in flow(small("pre"), seeds=1).passes)


def test_a_run_whose_loss_is_not_finite_ends_and_says_so() -> None:
    found = flow(small("none", layers=4, context=8), seeds=[0, 1], task="copy", steps=20, lr=1e30)
    text = texts(found)["training-ended"]
    assert text.startswith("Training ended before step 20 with seed 0, 1, because the loss was not finite")
    assert f"the last pass is of step {found.training_steps[-1]}" in text
    assert found.training_steps[-1] < 20
    assert not found.void  # step 0 was measured
    assert "initialisation-only" not in texts(found)


def test_what_is_found_at_a_later_first_step_is_not_said_of_initialisation() -> None:
    late = [one_pass(training_step=5, input_gradient=1e-9), one_pass(training_step=9, input_gradient=1.0)]
    text = texts(findings(late, small("pre"), "random", 9))["gradient-vanishes"]
    assert "at training step 5" in text
    assert "1.0e-09" in text
    early = [one_pass(input_gradient=1e9)]
    assert "explodes at initialisation" in texts(findings(early, small("pre"), "random"))["gradient-explodes"]


def test_tokens_that_are_alike_are_not_yet_one() -> None:
    alike = [one_pass([step(0), step(1, token_cosine=0.9990)])]
    assert "mean cosine 0.9990" in texts(findings(alike, small("pre"), "random"))["tokens-alike"]
    assert "token-collapse" not in texts(findings(alike, small("pre"), "random"))
    one = [one_pass([step(0), step(1, token_cosine=1 - 1e-6)])]
    assert set(texts(findings(one, small("pre"), "random"))) >= {"token-collapse"}
    assert "tokens-alike" not in texts(findings(one, small("pre"), "random"))


@pytest.mark.negative
def test_a_collapse_without_a_loss_of_gradient_has_no_consequence() -> None:
    passes = [
        one_pass([step(0), step(1, token_cosine=0.5)], training_step=0),
        one_pass([step(0), step(1, token_cosine=1.0)], training_step=1),
        one_pass([step(0), step(1, token_cosine=1.0)], training_step=2, input_gradient=0.5),
    ]
    found = texts(findings(passes, small("pre"), "random", 2))
    assert "at training step 1 " in found["token-collapse"]
    assert "from 0.5000 at step 0" in found["token-collapse"]
    assert "gradient-after-collapse" not in found
