"""What `import normula` offers, and that rooms and verbs of one name do not hide each other."""

import subprocess
import sys

import pytest

import normula as nm

PUBLIC = {
    *("Formula", "FormulaError", "Placement", "Spec"),
    *(
        "advise",
        "build",
        "claims",
        "compare",
        "explain",
        "flow",
        "guard",
        "placement",
        "placements",
        "race",
        "read",
        "rewire",
    ),
}


def test_the_public_names_are_these() -> None:
    assert set(nm.__all__) == PUBLIC
    assert all(hasattr(nm, name) for name in PUBLIC)
    assert set(dir(nm)) >= PUBLIC


@pytest.mark.parametrize(
    "room",
    [
        "normula.flow",
        "normula.compare",
        "normula.explain",
        "normula.flow.flow",
        "normula.race",
        "normula.cli.compare_command",
    ],
)
def test_a_verb_stays_a_verb_when_the_room_of_its_name_is_imported_first(room: str) -> None:
    verbs = ("flow", "compare", "explain", "race", "read")
    code = f"import {room}, normula; assert all(callable(getattr(normula, verb)) for verb in {verbs})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.negative
def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'normula' has no attribute 'flwo'"):
        nm.flwo  # noqa: B018


@pytest.mark.negative
def test_another_framework_is_named_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="a framework is one of torch, flax, linen, nnx, not 'tensorflow'"):
        nm.build(nm.Spec(layers=1), framework="tensorflow")
