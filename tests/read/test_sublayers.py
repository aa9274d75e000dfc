"""What a sublayer is called: with an operator inside that nobody knows, nothing that may be wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normula.read import read
from tests.read import models as m


@torch.library.custom_op("normula_tests::mixes_tokens", mutates_args=())
def mixes_tokens(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention, as a kernel of somebody's own: only its name is seen."""
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class Kernel(nn.Module):
    """Projections around an operator that is not known."""

    def __init__(self, known: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(m.WIDTH, m.WIDTH) for _ in range(4))
        self.known = known

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v if self.known else mixes_tokens(q, k, v)
        return self.o(mixed)


class Layer(nn.Module):
    def __init__(self, known: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(m.WIDTH), nn.LayerNorm(m.WIDTH)
        self.attn, self.mlp = Kernel(known), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@pytest.mark.negative
@pytest.mark.parametrize("known", [True, False])
def test_a_sublayer_with_an_unknown_operator_gets_no_name(known: bool) -> None:
    stages = read(m.Stack([Layer(known), Layer(known)]), m.stream()).stages
    if known:
        assert [stage.block for stage in stages] == ["x = x + attn(norm(x)); x = x + mlp(norm(x))"]
    else:
        assert not any(stage.known for stage in stages)


def test_the_places_that_a_router_chose_are_no_unknown_operator() -> None:
    """A topk has two results; the second, whole numbers, is not read as a step of its own."""

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.experts = nn.LayerNorm(m.WIDTH), m.Experts()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.experts(self.norm(x))

    (stage,) = read(m.Stack([Sparse(), Sparse()]), m.stream()).stages
    assert stage.block == "x = x + moe(norm(x))"
