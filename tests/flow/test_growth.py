"""The law by which the stream grows: known laws are found, and stacks follow the one that theory gives."""

import math

import numpy as np
import pytest

from normula.flow import flow
from normula.flow.growth import growth
from normula.record import GrowthLaw
from normula.spec import Spec
from tests.flow.synthetic import sized

N = np.arange(1, 25)
EXACT = dict(rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1.0, -0.5, 2.0])
@pytest.mark.parametrize("offset", [0, 1, 7, 24])
def test_a_power_is_found_with_the_size_that_the_stream_had_before(exponent: float, offset: int) -> None:
    law = growth([sized(0.3 * (N + offset) ** exponent)])
    assert law == GrowthLaw(
        kind="power", exponent=pytest.approx(exponent, **EXACT), offset=offset, r2=pytest.approx(1.0, **EXACT)
    )


@pytest.mark.parametrize("rate", [math.log(2), 0.1, -0.1])
def test_an_exponential_is_found(rate: float) -> None:
    law = growth([sized(0.3 * np.exp(rate * N))])
    assert law == GrowthLaw(
        kind="exponential", exponent=pytest.approx(rate, **EXACT), r2=pytest.approx(1.0, **EXACT), offset=0
    )


@pytest.mark.parametrize("sizes", [[2.0] * 24, 1 + 0.07 * np.sin(N), 1 + 0.005 * N], ids=["constant", "waves", "slow"])
def test_what_hardly_changes_is_flat(sizes: np.ndarray) -> None:
    assert growth([sized(sizes)]) == GrowthLaw(kind="flat", exponent=0.0, r2=1.0)


def test_the_law_is_of_the_mean_over_seeds() -> None:
    law = growth([sized(k * np.sqrt(N)) for k in (0.5, 1.0, 3.0)])
    assert law is not None
    assert (law.kind, law.offset) == ("power", 0)
    assert law.exponent == pytest.approx(0.5)


@pytest.mark.negative
@pytest.mark.parametrize(
    "sizes", [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, math.nan], [1.0, 2.0, 3.0, math.inf], [0.0, 1.0, 2.0, 3.0], []], ids=str
)
def test_there_is_no_law_of_too_few_sizes_or_of_none(sizes: list[float]) -> None:
    assert growth([sized(sizes)]) is None
    assert growth([]) is None


def law_of(placement: str, **fields: object) -> GrowthLaw:
    found = flow(Spec(**(dict(placement=placement, layers=20, width=32, heads=2) | fields)))  # type: ignore[arg-type]
    assert found.growth is not None
    text = next(finding.text for finding in found.findings if finding.kind == "growth")
    said = {
        "flat": "keeps its size",
        "power": f"**{found.growth.exponent:.2f} with the number",
        "exponential": "factor",
    }
    assert said[found.growth.kind] in text
    return found.growth


@pytest.mark.parametrize("init", ["xavier", "normal", "scaled"])
def test_post_ln_keeps_its_size_with_every_initialisation(init: str) -> None:
    assert law_of("post", init=init).kind == "flat"


def test_pre_ln_grows_with_the_root_of_depth_unless_its_writers_are_scaled() -> None:
    """Independent branches of one size add up so: Xiong et al., 2020, lemma 2. Scaling as GPT-2 does undoes it."""
    law = law_of("pre", width=64, sublayers=("mlp", "mlp"))
    assert law.kind == "power"
    assert law.exponent == pytest.approx(0.5, abs=0.1)
    assert law_of("pre", width=64, sublayers=("mlp", "mlp"), init="scaled").kind == "flat"


@pytest.mark.parametrize("name", ["peri", "res-post"])
def test_branches_that_end_in_a_norm_make_the_stream_grow_with_the_root_of_depth(name: str) -> None:
    law = law_of(name)
    assert law.kind == "power"
    assert law.exponent == pytest.approx(0.5, abs=0.1)
    assert law.r2 > 0.98


def test_without_norms_the_stream_grows_exponentially() -> None:
    law = law_of("none", layers=8, sublayers=("mlp", "mlp"))
    assert law.kind == "exponential"
    assert law.exponent > 0
