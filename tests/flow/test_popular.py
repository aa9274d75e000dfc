"""The popular figure, and the trap in it."""

import math

import pytest
import torch
from torch import Tensor, nn

from normula.catalog import placement
from normula.flow import popular
from normula.flow.findings import NULL
from normula.formula import Placement
from normula.record import PopularPoint

PRE = ("pre", "pre-no-final")


def points(what: str | Placement, *depths: int) -> dict[tuple[str, int], PopularPoint]:
    placed = what if isinstance(what, Placement) else placement(what)
    return {(point.probe, point.depth): point for point in popular(placed, depths)}


def as_it_goes_round(pre: bool, depth: int) -> float:
    """The figure's own program: blocks of one linear map and ReLU, the sum as the loss, the input's gradient."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.f = nn.Sequential(nn.Linear(64, 64), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.f(self.norm(x)) if pre else self.norm(x + self.f(x))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        model = nn.Sequential(*(Block() for _ in range(depth)))
        x = torch.randn(4, 64, requires_grad=True)
    model(x).sum().backward()
    return x.grad.norm().item()


@pytest.mark.parametrize("depth", [1, 5, 20, 50])
@pytest.mark.parametrize("name", [*PRE, "post"])
def test_the_figure_comes_out_as_it_goes_round(name: str, depth: int) -> None:
    found, expected = points(name, depth)["sum", depth].input_gradient, as_it_goes_round(name in PRE, depth)
    if name == "post":
        assert max(found, expected) < 1e-5  # rounding: nothing in it repeats but its size
    else:
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_figures_numbers() -> None:
    post = points("post", 20)["sum", 20].input_gradient
    pre = [points(name, 20)["sum", 20].input_gradient for name in PRE]
    assert [f"{value:.4f}" for value in (post, *pre)] == ["0.0000", "35.7888", "35.7888"]
    assert pre[0] / post > 1e7


@pytest.mark.parametrize("depth", [1, 5, 20, 50])
def test_what_it_shows_is_the_null_space_of_a_norm_and_there_at_depth_one_too(depth: int) -> None:
    point = points("post", depth)["sum", depth]
    assert point.norm_passes < NULL
    assert point.input_gradient < 1e-5
    assert math.isnan(points("pre", depth)["sum", depth].norm_passes)


def test_a_random_probe_gives_both_a_gradient_of_one_size() -> None:
    ratio = points("pre", 20)["random", 20].input_gradient / points("post", 20)["random", 20].input_gradient
    assert 1.2 < ratio < 1.5
    assert points("post", 20)["random", 20].norm_passes > 0.9


def test_both_probes_at_all_depths() -> None:
    assert list(points("post", 1, 3)) == [("sum", 1), ("sum", 3), ("random", 1), ("random", 3)]


def test_the_generator_of_the_caller_is_not_touched() -> None:
    before = torch.get_rng_state()
    popular(placement("post"), (2,))
    assert torch.equal(torch.get_rng_state(), before)
