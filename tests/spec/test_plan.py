"""A spec written out: its steps, the names of its parameters, their starts."""

from dataclasses import replace

import numpy as np
import pytest

from normula.formula import Formula, Placement, Range
from normula.oracle import run, weights
from normula.spec import Spec, plan
from tests.cases import PLACEMENTS, random_inputs, random_weights, small
from tests.near import SAME_PROGRAM, assert_near

MIX = Placement(
    name="mix", formula="x + f(norm(x))", final="norm(x)", ranges=(Range(until="L/4", formula="norm(x + f(x))"),)
)


def test_the_names_of_parameters_say_the_site() -> None:
    spec = small("peri", layers=1, norm="rmsnorm", bias=False, vocab=7)
    assert list(plan(spec).parameters) == [
        "embed.tokens.weight",
        "embed.positions.weight",
        "layers.0.attn.norm_in.weight",
        "layers.0.attn.f.q.weight",
        "layers.0.attn.f.k.weight",
        "layers.0.attn.f.v.weight",
        "layers.0.attn.f.o.weight",
        "layers.0.attn.norm_out.weight",
        "layers.0.mlp.norm_in.weight",
        "layers.0.mlp.f.up.weight",
        "layers.0.mlp.f.down.weight",
        "layers.0.mlp.norm_out.weight",
        "final.norm.weight",
        "head.weight",
    ]


def test_values_are_embedded_by_a_matrix_with_a_bias() -> None:
    parameters = plan(small("pre", layers=1, features=3, classes=4)).parameters
    assert [(name, parameters[name].shape) for name in parameters if name.startswith(("embed", "head"))] == [
        ("embed.features.weight", (8, 3)),
        ("embed.features.bias", (8,)),
        ("embed.positions.weight", (6, 8)),
        ("head.weight", (4, 8)),
    ]
    assert "head.weight" not in plan(small("pre", features=3)).parameters


def test_streams_ranges_and_repeated_sublayers_have_names_of_their_own() -> None:
    spec = small(PLACEMENTS["two streams"], sublayers=("attn", "mlp", "attn"), layers=1)
    assert {name.rsplit(".", 1)[0] for name in plan(spec).parameters if "norm" in name} == {
        "embed.norm",
        "start_y.norm",
        "layers.0.attn.norm_sum",
        "layers.0.mlp.norm_sum",
        "layers.0.attn_2.norm_sum",
        "final.norm",
    }
    mix = plan(small(MIX, layers=4)).parameters
    assert "layers.0.attn.norm_sum.weight" in mix
    assert "layers.0.attn.norm_in.weight" not in mix
    assert "layers.1.attn.norm_in.weight" in mix


def test_each_step_knows_its_depth() -> None:
    """Sublayers are counted through the stack, also where ranges have different numbers of them."""
    ranges = (Range(until="1", formula="x = x + mlp(norm(x)) / L"),)
    steps = plan(small(Placement(name="p", formula="x + f(x) / s", ranges=ranges), layers=3)).layers
    assert [[step.symbols.get("s") for step in layer] for layer in steps] == [[None], [2, 3], [4, 5]]
    assert [layer[0].symbols["l"] for layer in steps] == [1, 2, 3]
    assert {(step.symbols["L"], step.symbols["S"]) for layer in steps for step in layer} == {(3, 5)}


@pytest.mark.parametrize("layers", [1, 3, 4, 8])
def test_a_range_holds_the_first_layers(layers: int) -> None:
    post = [step[0].formula == Formula("norm(x + f(x))") for step in plan(small(MIX, layers=layers)).layers]
    assert post == [l <= layers // 4 for l in range(1, layers + 1)]


def test_a_mixed_stack_is_post_ln_and_then_pre_ln() -> None:
    """The first quarter by itself, then the rest by itself on what came out of it."""
    mixed = small(MIX, layers=4)
    first, rest = small("post", layers=1), small("pre", layers=3)
    arrays, x = random_weights(mixed), random_inputs(mixed)
    later = {
        name.replace(f"layers.{i}.", f"layers.{i - 1}."): array
        for name, array in arrays.items()
        for i in range(1, 4)
        if name.startswith((f"layers.{i}.", "final."))
    }

    between = run(first, arrays, x).output

    assert_near(run(mixed, arrays, x).output, run(rest, later, between).output, SAME_PROGRAM)


STEPS = [name for name, one in PLACEMENTS.items() if one.formula.is_step and one.operator is None]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_computes_what_its_layer_computes(name: str) -> None:
    """The layer's formula with the same weights: its norms and matrices, and apart from them its gains, in order."""
    placement = PLACEMENTS[name]
    step = small(placement, layers=2)
    written_out = replace(
        placement,
        formula=placement.formula.layer(step.sublayers),
        ranges=tuple(Range(until=r.until, formula=r.formula.layer(step.sublayers)) for r in placement.ranges),
    )
    layer = small(written_out, layers=2, encoder=step.encoder, sublayers=step.sublayers)
    arrays, x = random_weights(step), random_inputs(step)
    names = dict(zip(gains_last(layer), gains_last(step), strict=True))
    source = None if step.encoder is None else random_inputs(step.encoder, seed=2)

    expected = run(step, arrays, x, source=source)
    found = run(layer, {new: arrays[old] for new, old in names.items()}, x, source=source)

    assert_near(found.output, expected.output, SAME_PROGRAM)
    assert_near(found.pullback(x)[0], expected.pullback(x)[0], SAME_PROGRAM)


def gains_last(spec: Spec) -> list[str]:
    return sorted(plan(spec).parameters, key=lambda name: name.rsplit(".", 1)[-1].startswith("gain"))


def test_the_papers_rule_multiplies_what_it_names_and_nothing_else() -> None:
    """DeepNorm: Xavier with gain (8L)^(-1/4) on values, outputs and the MLP, with gain 1 on queries and keys."""
    paper, xavier = (weights(Spec(placement="deepnorm", layers=6, width=8, init=init)) for init in ("paper", "xavier"))
    for name, array in xavier.items():
        factor = (8 * 6) ** -0.25 if name.split(".")[-2] in ("v", "o", "up", "down") else 1.0
        np.testing.assert_allclose(paper[name], factor * array, rtol=1e-15, err_msg=name)  # one product, rounded


@pytest.mark.negative
@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("x + f(norm(x)) / gain(0)", r"1/gain\(0\) is not a finite real number at L = 2, S = 4.* l = 1, s = 1"),
        ("x + f(norm(x)) / (L - 2)", "is not a finite real number"),
        ("x + log(L - 2) * f(x)", r"log\(L - 2\) is not a finite real number"),
        ("x + sqrt(L - 3) * f(x)", r"sqrt\(L - 3\) is not a finite real number"),
        ("x + f(norm(x)) / (l - 2)", "is not a finite real number at L = 2, S = 4.* l = 2, s = 3"),
        ("x + a * f(norm(x))", "'a' has no value here; give it one, such as a = 2"),
        ("x + gain * f(x)", "does not say what its gain starts at; write gain"),
        ("x = x + ssm(norm(x))", "ssm is not built from a spec"),
        ("x = x + s * mlp(x)", "a whole layer, where s has no meaning; write it with l"),
        ("x + norm(f(x), gain=a)", "'a' has no value here"),
    ],
)
def test_what_cannot_be_written_out_is_refused(formula: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(small(formula))


@pytest.mark.negative
def test_a_site_inside_a_sublayer_that_no_layer_has_is_refused() -> None:
    with pytest.raises(ValueError, match="mid is a site inside mlp, and the sublayers are attn"):
        plan(small("x + f(x, mid=norm)", sublayers=("attn",)))


@pytest.mark.parametrize("formula", ["x + f(norm(x)) / (1 - gain(0))", "x + sqrt(L - 1) * f(x)", "x + f(x, mid=norm)"])
def test_their_neighbours_are_written_out(formula: str) -> None:
    plan(small(formula))
