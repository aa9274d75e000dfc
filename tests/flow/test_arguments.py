"""What flow takes, and what it refuses with which words."""

from typing import Any

import numpy as np
import pytest
import torch

from normula.catalog import placement
from normula.data import Copy
from normula.flow import flow
from normula.formula import Formula
from normula.record import Flow, from_json, to_json
from normula.torch import build
from tests.cases import small


@pytest.mark.negative
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(probe="randon"), "a probe is one of random, loss, sum, not 'randon'; did you mean 'random'?"),
        (dict(seeds=0), "seeds are a number of at least 1"),
        (dict(seeds=[-1]), "whole numbers of at least 0, not \\[-1\\]"),
        (dict(steps=-1), "training steps are whole numbers of at least 0"),
        (dict(batch=0), "batch and tokens are at least 1, not 0 and 16"),
        (dict(tokens=0), "batch and tokens are at least 1, not 4 and 0"),
        (dict(task="copi"), "a task is one of text, copy, .* not 'copi'; did you mean 'copy'?"),
        (dict(task="copy", inputs=np.zeros((1, 2, 8))), "leave out one of task and inputs"),
        (dict(inputs=np.zeros((1, 2, 9))), r"takes \(B, T, 8\) vectors; the input has the shape \(1, 2, 9\)"),
        (dict(inputs=np.zeros((2, 8))), r"takes \(B, T, 8\) vectors; the input has the shape \(2, 8\)"),
        (dict(inputs=np.zeros((0, 2, 8))), "at least one token"),
        (dict(framework="torhc"), "a framework is one of torch, flax, linen, nnx, not 'torhc'; did you mean 'torch'?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_is_refused_and_the_cure_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flow(small("pre"), **arguments)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 7]], "ids are whole numbers from 0 to 6; the input has int64 from 0 to 7"),
        ([[-1, 2]], "from -1 to 2"),
        ([[0.5, 2.0]], "ids are whole numbers from 0 to 6; the input has float64"),
        (torch.tensor([[9]]), "from 9 to 9"),
        ([0, 1], r"takes \(B, T\) ids; the input has the shape \(2,\)"),
    ],
    ids=str,
)
def test_ids_that_no_symbol_has_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flow(small("pre", vocab=7), inputs=ids)


@pytest.mark.negative
@pytest.mark.parametrize("what", [3, None, torch.zeros(2)], ids=str)
def test_only_a_spec_a_placement_a_formula_or_a_model_flows(what: Any) -> None:
    with pytest.raises(ValueError, match="flow takes a Spec, a placement, a formula, a model or its Reading, not"):
        flow(what)


@pytest.mark.negative
def test_a_stack_with_an_encoder_is_not_measured() -> None:
    with pytest.raises(ValueError, match="flow measures one stack, and this spec has an encoder too"):
        flow(small("post", encoder=small("post"), sublayers=("attn", "cross", "mlp")))


@pytest.mark.negative
def test_a_model_is_not_trained() -> None:
    with pytest.raises(ValueError, match="give its spec"):
        flow(build(small("pre", vocab=16, context=8)), task="copy", steps=1)


@pytest.mark.negative
def test_a_task_and_a_model_have_the_same_symbols() -> None:
    with pytest.raises(ValueError, match="the task has 16 symbols and the model 5"):
        flow(small("pre", vocab=5), task="copy")


@pytest.mark.parametrize("what", ["pre", "x + f(norm(x))", Formula("x + f(norm(x))"), placement("pre")], ids=repr)
def test_a_name_a_formula_or_a_placement_will_do(what: Any) -> None:
    found = flow(what, seeds=1, batch=1, tokens=2)
    assert len(found.passes[0].steps) == 24
    assert found.spec["placement"]["formula"] == "x + f(norm(x))"


def test_vectors_and_ids_can_be_given_in_any_usual_form() -> None:
    vectors = np.random.default_rng(0).standard_normal((1, 3, 8))
    forms = [flow(small("pre"), seeds=1, inputs=x).passes for x in (vectors, vectors.tolist(), torch.tensor(vectors))]
    assert forms[0] == forms[1] == forms[2] or repr(forms[0]) == repr(forms[1]) == repr(forms[2])
    ids = [[1, 2, 3]]
    forms = [flow(small("pre", vocab=5), seeds=1, inputs=x).passes for x in (ids, np.array(ids), torch.tensor(ids))]
    assert repr(forms[0]) == repr(forms[1]) == repr(forms[2])


def test_a_task_decides_what_the_spec_leaves_open() -> None:
    found = flow(small("pre"), seeds=1, task=Copy(symbols=5, context=4))
    assert (found.spec["vocab"], found.spec["causal"], found.spec["context"]) == (5, False, 4)
    text = flow(small("pre"), seeds=1, probe="loss")
    assert (text.spec["vocab"], text.spec["causal"], text.spec["context"]) == (256, True, 32)


def test_seeds_draw_anew_and_repeat() -> None:
    found = flow(small("pre"), seeds=[4, 9])
    assert [one.seed for one in found.passes] == [4, 9]
    assert found.passes[0].steps != found.passes[1].steps
    assert repr(flow(small("pre"), seeds=[9]).passes) == repr(found.passes[1:])


def test_every_pass_is_reported() -> None:
    reports: list[None] = []
    flow(small("pre", context=8), seeds=2, task="copy", steps=2, report=lambda: reports.append(None))
    assert len(reports) == 6


def test_the_record_says_what_was_measured_and_goes_through_json() -> None:
    spec = small("deepnorm", init="paper")
    found = flow(spec, seeds=2)
    assert found.spec == spec.to_dict()
    assert (found.name, found.probe, found.schema) == ("deepnorm", "random", 1)
    assert found.environment.device == "cpu"
    assert set(found.environment.versions) == {"normula", "numpy", "torch"}
    again = from_json(Flow, to_json(found))
    assert repr(again.passes) == repr(found.passes)
    assert again.findings == found.findings


@pytest.mark.negative
@pytest.mark.parametrize("name", ["mhc", "hyper-connections", "attention-residuals"])
def test_a_registered_operator_has_no_one_stream_to_measure(name: str) -> None:
    with pytest.raises(ValueError, match="several streams"):
        flow(small(name))


@pytest.mark.negative
def test_a_task_of_two_stacks_and_a_task_of_other_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="flow measures one stack, and translate has a source for another"):
        flow("pre", task="translate")
    with pytest.raises(ValueError, match="the task has 16 symbols and the model None; they must be the same"):
        flow(small("pre", features=3), task="copy")
