"""From a name, or a formula's text, to a placement."""

import pytest

from normula.catalog import entries, entry, names_of, placement, placements
from normula.formula import Formula, FormulaError, Placement


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("pre", "pre"),
        ("Pre-LN", "pre"),
        ("norm_first", "pre"),
        ("SANDWICH", "peri"),
        ("gemma2", "peri"),
        ("DeepNet", "deepnorm"),
        ("PaLM", "parallel"),
        ("Parallel sublayers, one norm", "parallel"),
        ("normalized-residual", "normalised-residual"),
    ],
)
def test_a_name_a_title_or_an_alias_in_any_case(said: str, name: str) -> None:
    assert placement(said).name == name
    assert entry(said).name == name


def test_every_title_is_found() -> None:
    for one in entries():
        assert placement(one.title) is one.placement


def test_placements_are_those_of_the_entries_in_their_order() -> None:
    assert placements() == tuple(one.placement for one in entries())


def test_a_text_becomes_a_placement_closed_as_a_named_one() -> None:
    for text in ("x + f(norm(x))", "norm(x + f(x))"):
        known = placement("pre" if text.startswith("x") else "post")
        assert placement(text).formula == placement(Formula(text)).formula == known.formula
        assert placement(text).final == known.final
    mine = Placement(name="mine", formula="x + f(x)")
    assert placement(mine) is mine


def test_names_of_a_formula_however_it_is_written() -> None:
    assert "post" in [one.name for one in names_of(Formula("norm(f(x) + x)"))]
    assert "pre" in [one.name for one in names_of(Formula("x = x + attn(norm(x)); y1 = norm(x); x = x + mlp(y1)"))]
    assert names_of(Formula("x + 2 * f(norm(x))")) == ()


@pytest.mark.negative
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("prre", "no placement is called 'prre'; the names are post, pre, .*; did you mean 'pre'"),
        ("deep norm", "did you mean .deep-?norm"),
        ("sandwhich", "did you mean 'sandwich'"),
        ("", "no placement is called ''"),
        ("x", "no placement is called 'x'"),
        (None, "a name such as 'pre' or a formula's text, not None"),
        (7, "not 7"),
    ],
)
def test_an_unknown_name_lists_the_names_and_the_nearest(said: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        placement(said)  # type: ignore[arg-type]


@pytest.mark.negative
def test_a_text_that_is_no_name_is_read_as_a_formula() -> None:
    with pytest.raises(FormulaError, match="did you mean 'norm'"):
        placement("x + f(nrom(x))")
