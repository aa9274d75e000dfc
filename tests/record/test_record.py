"""Records to JSON and back."""

import json
import math
import platform
from typing import Any

import numpy as np
import pytest

from normula.record import (
    Comparison,
    Contestant,
    DepthPoint,
    Environment,
    Finding,
    Flow,
    GrowthLaw,
    Pass,
    PopularPoint,
    Share,
    Statement,
    StepFlow,
    Trial,
    WeightFlow,
    environment,
    from_dict,
    from_json,
    to_dict,
    to_json,
)

NUMBERS = (0.0, -0.0, 1.5, 1e-300, 1e300, 0.1 + 0.2, math.inf, -math.inf, math.nan)

STEP = StepFlow(
    layer=1,
    name="attn",
    rms_before=1.0,
    rms_after=math.inf,
    branch_rms=0.0,
    skip_rms=0.0,
    gradient=math.nan,
    skip_gradient=1e-12,
    token_cosine=-0.5,
    step_cosine=1.0,
    largest=math.inf,
)
PASS = Pass(
    seed=3,
    training_step=10,
    loss=math.nan,
    steps=(STEP, STEP),
    weights=(WeightFlow(name="layers.0.attn.gain", norm=0.0, gradient=-math.inf),),
    input_gradient=0.1 + 0.2,
    skip_gradient=0.0,
    output_gradient=1.0,
    norm_passes=math.nan,
)
HERE = Environment(versions={"torch": "2"}, python="3.11", machine="x86_64 Linux", device="cpu")
FLOW = Flow(
    name="pre",
    spec={"layers": 2, "final": None, "sublayers": ["attn", "mlp"]},
    probe="sum",
    passes=(PASS,),
    growth=GrowthLaw(kind="power", exponent=0.5, offset=3, r2=0.99),
    findings=(Finding(kind="void-probe", weight="void", text='Void: a ⟨text⟩ with "quotes"\nand lines'),),
    environment=HERE,
)
TRIAL = Trial(
    identity="0123",
    name="post",
    init="xavier",
    lr=1e-3,
    warmup=50,
    seed=1,
    curve=(5.5, math.inf),
    loss=math.nan,
    stuck_loss=3.0,
    outcome="diverged",
    seconds=1.0,
    tokens_per_second=1e4,
)
POINT = DepthPoint(
    name="post",
    init="xavier",
    width=8,
    depth=5,
    input_gradient=(1.0, 0.5, 2.0),
    skip_gradient=(math.nan, math.nan, math.nan),
    rms=(1.0, 1.0, 1.0),
    token_cosine=(0.0, -1.0, 1.0),
    void=True,
)
COMPARISON = Comparison(
    contestants=(
        Contestant(
            name="post",
            title="Post-LN",
            placement={"formula": "norm(x + f(x))"},
            skip="J",
            words="words",
            svg="<svg/>",
            predictions=(("a", "b"),),
        ),
    ),
    settings={"lr": [1e-3], "data": None},
    data={"stuck_loss": 3.0},
    flows=(FLOW,),
    depths=(POINT,),
    popular=(PopularPoint(name="post", depth=5, probe="sum", input_gradient=1e-7, norm_passes=math.nan),),
    trials=(TRIAL,),
    planned=2,
    shares=(Share(factors=("placement", "warmup"), share=0.25),),
    verdict=(Statement(kind="headline", text="So it is."),),
    environment=HERE,
    seconds=2.5,
)
RECORDS = [STEP, PASS, FLOW, TRIAL, POINT, COMPARISON, HERE]


@pytest.mark.property
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_from_json_as_it_was(record: Any) -> None:
    assert repr(from_json(type(record), to_json(record))) == repr(record)  # by repr: nan is not nan
    assert repr(from_dict(type(record), to_dict(record))) == repr(record)
    assert to_json(from_json(type(record), to_json(record))) == to_json(record)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_every_number_comes_back_to_the_bit(number: float) -> None:
    record = WeightFlow(name="w", norm=number, gradient=1.0)
    again = from_json(WeightFlow, to_json(record)).norm
    assert repr(again) == repr(number)
    assert isinstance(again, float)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_the_json_is_one_that_every_reader_accepts(record: Any) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    assert json.loads(to_json(record), parse_constant=refuse) == to_dict(record)


def test_numbers_that_are_not_finite_are_kept_by_name() -> None:
    data = to_dict(TRIAL)
    assert (data["curve"], data["loss"]) == ([5.5, "inf"], "nan")
    assert to_dict(PASS)["weights"][0]["gradient"] == "-inf"


def test_records_carry_the_version_of_their_schema() -> None:
    assert to_dict(FLOW)["schema"] == to_dict(COMPARISON)["schema"] == 1


@pytest.mark.negative
@pytest.mark.parametrize("kind", [Flow, Comparison])
def test_a_record_of_another_schema_is_refused(kind: type) -> None:
    data = to_dict(FLOW if kind is Flow else COMPARISON)
    with pytest.raises(ValueError, match="a record of schema 1 is read here; this one has schema 2"):
        from_dict(kind, data | {"schema": 2})


@pytest.mark.negative
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not JSON"),
        ("{", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("[]", "this is not a record of kind Flow"),
        ("{}", "this is not a record of kind Flow: .*name"),
        ('"nan"', "this is not a record of kind Flow"),
        (to_json(TRIAL), "this is not a record of kind Flow"),
        (to_json(FLOW).replace('"norm_passes": "nan"', '"norm_passes": "much"'), "norm_passes"),
        (to_json(FLOW).replace('"weight": "void"', '"weight": "bad"'), "weight"),
        (to_json(FLOW).replace('"probe": "sum",', ""), "probe"),
    ],
    ids=[
        "empty",
        "half",
        "deep",
        "list",
        "no fields",
        "text",
        "another kind",
        "no number",
        "no such value",
        "field missing",
    ],
)
def test_what_is_no_record_is_refused_and_the_place_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Flow, text)


def test_a_ratio_without_a_skip_is_infinite() -> None:
    assert STEP.ratio == math.inf


def test_a_flow_knows_its_training_steps_and_whether_it_is_void() -> None:
    assert FLOW.void
    assert FLOW.training_steps == (10,)
    assert FLOW.at(10) == (PASS,)
    assert FLOW.at(0) == ()


def test_the_environment_says_what_is_installed_here() -> None:
    found = environment("torch", device="cuda:0")
    assert found.versions["numpy"] == np.__version__
    assert found.python == platform.python_version()
    assert found.device == "cuda:0"
    assert environment("no-such-framework").versions["no-such-framework"] == "not installed"
