"""The page of many readings says only what was replayed, and is made of the rows beside it."""

import re
from typing import Any

import pytest

from tests.read.census import DOCS, PAGE, PROVED, kind, page, stored


def row(block: str, proof: str) -> dict[str, Any]:
    stage = {"layers": 2, "block": block, "names": ["pre"], "proof": proof}
    return {
        "name": "hf:gpt2",
        "library": "transformers",
        "version": "1",
        "ran": True,
        "stages": [stage],
        "embed": [False],
        "final": [True],
        "norm": "LayerNorm",
    }


@pytest.mark.parametrize("proof", ["not replayed", "failed"])
def test_a_formula_that_was_not_replayed_is_no_row(proof: str) -> None:
    with pytest.raises(ValueError, match=rf"hf:gpt2 has a formula that was {proof}"):
        page([row("x = x + mlp(norm(x))", proof)], 1)


def test_a_row_says_the_formula_its_name_and_its_proof() -> None:
    text = page([row("x = x + mlp(norm(x))", "replayed"), row("unknown", "failed")], 1)
    assert "| gpt2 | 2 | `x = x + mlp(norm(x))` | pre | f | LayerNorm | replayed |" in text
    assert "| transformers | 2 | 1 | 0 | 1 | 0 | 0 |" in text


def test_the_page_is_made_of_the_rows_beside_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    types = re.search(r"of the (\d+) model types", text)
    assert types is not None
    assert text == page(list(stored().values()), int(types[1]))
    title = text.splitlines()[0].removeprefix("# ")
    assert f"[{title}](models.md)" in (DOCS / "read.md").read_text(encoding="utf-8")


def test_every_known_row_was_replayed() -> None:
    stages = [stage for one in stored().values() if one["ran"] for stage in one["stages"]]
    assert {stage["proof"] for stage in stages if stage["block"] != "unknown"} <= set(PROVED)
    assert sum(kind(one) == "whole" for one in stored().values()) > 400
