"""What is not finite, what is constant, what is too large for half precision."""

import math

import numpy as np
import pytest
import torch

from normula.flow import flow
from normula.record import Flow, from_json, to_json
from normula.spec import Spec
from normula.torch import Model, build

PLACEMENTS = ("post", "pre", "pre-no-final", "rezero", "none")


def stack(name: str) -> Spec:
    return Spec(placement=name, layers=3, width=8, heads=2)


def rows(value: float = 0.0) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2, 4, 8))
    x[0, 1] = value
    return x


def finding(found: Flow, kind: str) -> str:
    return next(finding.text for finding in found.findings if finding.kind == kind)


@pytest.mark.negative
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", PLACEMENTS)
def test_an_input_that_is_not_finite_makes_the_measurement_void_and_is_named(name: str, value: float) -> None:
    found = flow(stack(name), inputs=rows(value), seeds=1)
    assert found.void
    assert found.findings[0].kind == "not-finite"
    assert "the first such value: the input already" in found.findings[0].text


@pytest.mark.parametrize("value", [0.0, 1.0, 1234.0])
@pytest.mark.parametrize("everywhere", [False, True], ids=["one row", "all rows"])
@pytest.mark.parametrize("name", PLACEMENTS)
def test_constant_rows_are_measured(name: str, value: float, everywhere: bool) -> None:
    found = flow(stack(name), inputs=np.full((2, 4, 8), value) if everywhere else rows(value), seeds=1)
    one = found.passes[0]
    assert not found.void
    assert all(math.isfinite(number) for number in (one.input_gradient, one.skip_gradient))
    assert all(math.isfinite(weight.gradient) for weight in one.weights)
    assert all(
        math.isfinite(getattr(step, name))
        for step in one.steps
        for name in type(step).__dataclass_fields__
        if name not in ("layer", "name")
    )


def test_tokens_of_zeros_are_not_alike() -> None:
    steps = flow(stack("pre"), inputs=np.zeros((2, 4, 8)), seeds=1).passes[0].steps
    assert [step.token_cosine for step in steps] == [0.0] * 6


def scaled(factor: float) -> Model:
    """Pre-LN whose second layer's MLP writes much too much."""
    model = build(stack("pre-no-final"))
    with torch.no_grad():
        model.layers[1].mlp.f.down.weight.mul_(factor)
    return model


def test_the_first_place_that_is_not_finite_is_named_not_where_it_shows_up() -> None:
    found = flow(scaled(3e39), seeds=1)
    assert "the first such value: layer 2, mlp" in finding(found, "not-finite")
    assert not found.void  # what stands before it was measured
    assert math.isfinite(found.passes[0].steps[2].rms_after)


def test_a_stream_near_the_end_of_float16_is_named() -> None:
    """A stream of more than 65504 is inf in float16, and the norm behind it makes NaN of the whole token."""
    model = scaled(1e5)
    found = flow(model, seeds=1)
    largest = max(step.largest for step in found.passes[0].steps)
    assert largest > 65504
    text = finding(found, "half-precision")
    assert f"The stream reaches {largest:.0f} at layer 2, mlp" in text
    assert f"{largest / 65504:.0%} of the largest float16" in text


@pytest.mark.negative
def test_a_stream_of_usual_size_is_not() -> None:
    assert "half-precision" not in {finding.kind for finding in flow(scaled(1.0), seeds=1).findings}


@pytest.mark.parametrize("what", [flow(stack("post"), inputs=rows(math.nan), seeds=1), flow(scaled(3e39), seeds=1)])
def test_a_record_with_nan_and_inf_goes_through_json(what: Flow) -> None:
    text = to_json(what)
    assert "NaN" not in text
    assert "Infinity" not in text
    again = from_json(Flow, text)
    assert repr(again) == repr(what)
    assert again.void == what.void
