"""What each norm, gain and sublayer of a formula is called in a model."""

import pytest
from hypothesis import given

from normula.formula import Formula, FormulaError
from tests.cases import BLOCKS, PLACEMENTS
from tests.formula.strategies import formulas

SITES = {
    "post": ("f", "norm_sum"),
    "pre": ("norm_in", "f"),
    "peri": ("norm_in", "f", "norm_out"),
    "res-post": ("f", "norm_out"),
    "olmo2": ("f", "norm_out"),
    "pre-and-post": ("norm_in", "f", "norm_sum"),
    "normalised-residual": ("norm_in", "f"),
    "deepnorm": ("f", "norm_sum"),
    "rezero": ("gain", "f"),
    "layerscale": ("gain", "norm_in", "f"),
    "lns": ("norm_in", "f"),
    "parallel": ("norm_in", "attn.f", "mlp.f"),
    "parallel-two-norms": ("attn.norm_in", "attn.f", "mlp.norm_in", "mlp.f"),
    "none": ("f",),
    "residual streams": ("f", "norm_sum"),
    "on the sphere": ("gain", "f", "norm_out", "norm_sum"),
    "b2t": ("attn.f", "attn.norm_sum", "mlp.f", "mlp.norm_sum"),
    "shared gain": ("gain", "attn.norm_in", "attn.f", "mlp.norm_in", "mlp.f"),
}


@pytest.mark.parametrize("name", SITES)
def test_the_sites_of_a_known_placement(name: str) -> None:
    assert PLACEMENTS[name].formula.sites == SITES[name]


@pytest.mark.parametrize(
    ("text", "sites"),
    [
        ("x = x + attn(norm(x)); x = x + attn(norm(x))", ("attn.norm_in", "attn.f", "attn_2.norm_in", "attn_2.f")),
        ("x + f(norm(norm(x)))", ("norm", "norm_in", "f")),
        ("x + norm(norm(f(x)))", ("f", "norm_out", "norm_out_2")),
        ("gain(1) * x + gain(0) * f(x)", ("gain_skip", "gain", "f")),
        ("x + gain(0) * gain(0, 'channel') * f(x)", ("gain", "gain_2", "f")),
        ("norm(x) + f(norm(x))", ("norm", "norm_in", "f")),
        ("x = norm(attn(x)); x = norm(x + cross(x))", ("attn.f", "attn.norm_out", "cross.f", "cross.norm_sum")),
        ("x = x + mlp(norm(attn(norm(x))))", ("attn.norm_in", "attn.f", "mlp.norm_in", "mlp.f")),
    ],
)
def test_the_sites_of_a_formula(text: str, sites: tuple[str, ...]) -> None:
    assert Formula(text).sites == sites


def assert_named_well(formula: Formula) -> None:
    """Every call and gain has a name of its own, which says what it is."""
    assert len(formula.sites) == len(formula.calls) + len(formula.gains)
    assert len(set(formula.sites)) == len(formula.sites)
    for call in formula.calls:
        role = formula.sites[call.index].split(".")[-1]
        assert (role == "f") == (call.word in formula.sublayers)
        assert role == "f" or role.startswith("norm")
    for gain in formula.gains:
        assert formula.sites[gain.index].split(".")[-1].startswith("gain")


@pytest.mark.property
@given(formulas(built=False))
def test_every_site_of_a_random_formula_is_named_well(text: str) -> None:
    try:
        formula = Formula(text)
    except FormulaError:
        return
    assert_named_well(formula)


@pytest.mark.parametrize("text", BLOCKS)
def test_every_site_of_a_published_layer_is_named_well(text: str) -> None:
    assert_named_well(Formula(text))


@pytest.mark.parametrize("name", [name for name in PLACEMENTS if PLACEMENTS[name].formula.is_step])
def test_sublayers_have_the_same_sites_in_a_step_and_in_its_layer(name: str) -> None:
    """So that a matrix has one name, and one start, wherever its sublayer stands."""
    formula = PLACEMENTS[name].formula
    in_layer = [site for site in formula.layer(("attn", "mlp")).sites if site.endswith(".f")]
    assert in_layer == ["attn.f", "mlp.f"]
    assert [site for site in formula.sites if site.endswith("f")] == ["f"]
