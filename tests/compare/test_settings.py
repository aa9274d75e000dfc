"""What a comparison can be asked to do, and what is refused before any work."""

import json
from pathlib import Path
from typing import Any

import pytest

from normula.compare import Settings, compare
from normula.formula import Formula, Placement
from normula.race import pool


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that starts to work."""

    def refuse(*_: object) -> None:
        raise AssertionError("the work was started")

    monkeypatch.setattr(pool, "run_all", refuse)
    monkeypatch.setitem(compare.__globals__, "run_all", refuse)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(lr=()), "lr needs one or more different values"),
        (dict(lr=(1e-3, 1e-3)), "lr needs one or more different values"),
        (dict(lr=(0.0,)), "a learning rate is a positive number, not 0.0"),
        (dict(lr=(-1e-3,)), "a learning rate is a positive number"),
        (dict(lr=(float("nan"),)), "a learning rate is a positive number, not nan"),
        (dict(lr=(float("inf"),)), "a learning rate is a positive number, not inf"),
        (dict(warmup=()), "warmup needs one or more different values"),
        (dict(warmup=(-1,)), "a warmup is from 0 to fewer than the 150 steps, not -1"),
        (dict(warmup=(150,)), "a warmup is from 0 to fewer than the 150 steps, not 150"),
        (dict(steps=50), "a warmup is from 0 to fewer than the 50 steps, not 50"),
        (dict(init=()), "init needs one or more different values"),
        (dict(init=("xavier", "xavier")), "init needs one or more different values"),
        (dict(steps=0), "steps is at least 1, not 0"),
        (dict(batch=0), "batch is at least 1, not 0"),
        (dict(context=0), "context is at least 1, not 0"),
        (dict(seeds=0), "seeds is at least 1, not 0"),
        (dict(depths=()), "depths needs one or more different values"),
        (dict(depths=(0,)), "depths are at least 1"),
        (dict(probe="loss"), "the probe at initialisation is random or sum, not 'loss'"),
        (dict(flow_steps=-1), "flow_steps is at least 0, not -1"),
        (dict(workers=0), "workers is at least 1, not 0"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_setting_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**fields)
    with pytest.raises(ValueError, match=message):
        compare(**fields)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("placements", "fields", "message"),
    [
        (("pree",), {}, "no placement is called 'pree'.*did you mean 'pre'"),
        (("x + f(norm(x",), {}, "never closed"),
        (("x + gain * f(x)",), {}, "does not say what its gain starts at"),
        (("x + conv(norm(x))",), {}, "conv is not built from a spec"),
        (("x + f(norm(x)) / (l - 1)",), {}, "is not a finite real number at .*l = 1"),
        (("x + f(norm(x)) / (L - 5)",), dict(depths=(2, 5)), "is not a finite real number at L = 5"),
        (("pre", "x + f(x) / 2"), dict(init=("paper",)), "init='paper' needs a placement whose paper states a rule"),
        (("pre",), dict(width=9, heads=2), "width must be divisible by heads, and 9 is not by 2"),
        (("pre",), dict(layers=0), "layers is a whole number of at least 1"),
        (("pre",), dict(flow_width=0), "width is a whole number of at least 1"),
        (("pre",), dict(norm="layer"), "norm is one of .*did you mean 'layernorm'"),
        (("pre",), dict(activation="rellu"), "did you mean 'relu'"),
        (("pre",), dict(init=("xaver",)), "did you mean 'xavier'"),
        (("pre",), dict(data="/nowhere/text"), "there is no file /nowhere/text"),
        ((), {}, "a comparison needs at least one placement, such as pre"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_built_is_refused_before_any_work(
    placements: tuple[str, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(placements, **fields)


@pytest.mark.negative
@pytest.mark.parametrize(
    "placements",
    [
        ("pre", "pre"),
        ("pre", "pre-ln"),
        ("pre", "x + f(norm(x))"),
        ("x + f(norm(x))", "f(norm(x)) + x"),
        ("post", "n = x + f(x); norm(n)"),
        ("pre", "x = x + attn(norm(x)); x = x + mlp(norm(x))"),
        ("pre", Formula("x + f(norm(x))")),
    ],
    ids=str,
)
def test_placements_that_compute_the_same_are_refused(placements: tuple[str | Formula, ...]) -> None:
    with pytest.raises(ValueError, match=r"a comparison needs different placements"):
        compare(placements)


@pytest.mark.negative
def test_two_placements_of_one_name_are_refused() -> None:
    first = Placement(name="mine", formula="x + f(norm(x))")
    second = Placement(name="mine", formula="norm(x + f(x))")
    with pytest.raises(ValueError, match="mine is given twice"):
        compare([first, second])


@pytest.mark.parametrize("placements", [("pre", "pre-no-final"), ("res-post", "olmo2"), ("pre", "x + f(norm(x)) / 2")])
def test_placements_that_differ_in_what_surrounds_them_or_inside_are_taken(placements: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match="the work was started"):
        compare(placements)


@pytest.mark.negative
def test_settings_and_fields_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="give settings or fields, not both: steps, width"):
        compare(settings=Settings(), steps=3, width=8)


def test_settings_travel_as_json(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "text", lr=(1e-3,))  # type: ignore[arg-type]
    assert json.loads(json.dumps(settings.to_dict()))["data"] == str(tmp_path / "text")
    assert settings == Settings(data=str(tmp_path / "text"), lr=(1e-3,))


def test_the_defaults_are_those_of_the_readme() -> None:
    """Two rules of initial weights, rates around the interesting range, with and without warmup, two seeds."""
    default = Settings()
    assert default.init == ("xavier", "normal")
    assert min(default.lr) <= 1e-3 < 3e-3 <= max(default.lr)
    assert 0 in default.warmup
    assert len(default.warmup) == 2
    assert default.seeds == 2
    assert (default.layers, default.width) == (12, 32)
    assert {5, 50} <= set(default.depths)
