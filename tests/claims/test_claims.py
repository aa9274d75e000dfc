"""The ledger: every verdict on record is what comes out today."""

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from normula.claims import claim, claims, measure, names
from normula.claims.xiong import DEPTHS, norm, toy
from normula.record import ClaimResult, from_json, to_json

WANTED = (
    "branch-norm-is-neither",
    "deepnet-update",
    "identity-path-constant-gradient",
    "olmo2-without-qk",
    "popular-figure",
    "post-bound-grows",
    "post-is-shifted",
    "post-skip-modulated",
    "pre-direct-path",
    "pre-gradient-regardless-of-depth",
    "pre-stream-accumulates",
    "relative-pre-ln",
    "same-parameters-other-function",
    "scheme-table",
    "skip-path-gains",
    "statistics-per-token",
    "two-feature-example",
    "variance-not-exactly-one",
    "xiong-gradients",
    "xiong-norms",
)


def test_the_ledger_holds_at_least_these() -> None:
    assert set(WANTED) <= set(names())


@pytest.mark.parametrize("name", names())
def test_the_verdict_on_record_is_what_comes_out(name: str) -> None:
    found = measure(name)
    assert found.verdict == found.recorded, found.text
    assert found.figures
    assert from_json(ClaimResult, to_json(found)) == found


@pytest.mark.parametrize("name", names())
def test_a_claim_says_what_by_whom_and_how(name: str) -> None:
    one = claim(name)
    assert one.statement.endswith(".")
    assert one.source
    assert one.how.endswith(".")


def test_the_documentation_has_the_verdicts_on_record() -> None:
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
    for name in names(slow=True):
        row = next(line for line in page.splitlines() if line.startswith(f"| [{name}]"))
        assert f" | {claim(name).recorded} | " in row, "normula claims --slow --markdown > docs/claims.md"


def test_claims_come_in_the_order_asked_for_and_once() -> None:
    asked = ("variance-not-exactly-one", "two-feature-example", "variance-not-exactly-one")
    done: list[tuple[int, int]] = []
    found = claims(asked, workers=1, report=lambda n, of, what: done.append((n, of)))
    assert [one.name for one in found] == ["variance-not-exactly-one", "two-feature-example"]
    assert done == [(1, 2), (2, 2)]


@pytest.mark.negative
def test_an_unknown_claim_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no claim is called 'popular-figur'; did you mean 'popular-figure'\?"):
        claims(["two-feature-example", "popular-figur"])


def test_the_theorys_norm_has_neither_gain_nor_bias_and_size_one() -> None:
    sizes, gradients = toy(pre=False)
    assert list(gradients) == list(DEPTHS)
    assert fmean(sizes.values()) == pytest.approx(1.5, rel=0.03)  # lemma 2
    out, _ = norm(3 * np.random.default_rng(0).standard_normal((2, 256)) + 1)
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(out.var(-1), 1, rtol=1e-8)
