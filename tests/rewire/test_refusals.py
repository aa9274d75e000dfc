"""What is not rewired, and why."""

import math

import pytest
import torch
from torch import Tensor, nn

import normula as nm
from normula.rewire import RewireError, plan
from tests.rewire.models import Block, Stack, encoder, stack, transformer


def test_a_function_that_would_change_needs_to_be_accepted() -> None:
    model, example = stack("post")
    with pytest.raises(RewireError, match=r"not equivalent.*accept_inexact=True \(--accept-inexact\)") as raised:
        nm.rewire(model, "pre", example=example)
    assert "outputs change by" in str(raised.value)


def test_what_is_not_understood_is_named() -> None:
    class Odd(Block):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * torch.sigmoid(self.mlp(x))

    model = Stack("pre")
    model.layers[0] = Odd("pre")
    with pytest.raises(RewireError, match=r"only if all of it is understood, and layer \d"):
        nm.rewire(model, "post", example=(torch.randn(2, 5, 16),), accept_inexact=True)


@pytest.mark.parametrize("to", ["residual", "siamese", "hyper-connections"])
def test_placements_with_several_streams(to: str) -> None:
    model, example = stack("pre")
    with pytest.raises(RewireError, match="needs several streams"):
        nm.rewire(model, to, example=example, accept_inexact=True)


def test_a_placement_that_counts_training_steps() -> None:
    model, example = stack("pre")
    with pytest.raises(RewireError, match="changes with the training step"):
        nm.rewire(model, "prores", example=example, accept_inexact=True)


def test_layers_that_are_one_module() -> None:
    class Shared(Stack):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.layers[0](x)
            return self.last(x)

    with pytest.raises(RewireError, match="share"):
        nm.rewire(Shared("pre"), "post", example=(torch.randn(2, 5, 16),), accept_inexact=True)


def test_alberts_layers() -> None:
    pytest.importorskip("transformers")
    model, example = transformer("AlbertModel")
    with pytest.raises(RewireError, match="share"):
        nm.rewire(model, "pre", example=example, accept_inexact=True)


def test_quantised_parameters() -> None:
    model, example = stack("pre")
    model.layers[0].mlp[0] = torch.ao.nn.quantized.Linear(16, 32)
    with pytest.raises(RewireError, match=r"layers.0.mlp.0 is quantised"):
        nm.rewire(model, "post", example=example)
    model, example = stack("pre")
    model.layers[0].codes = nn.Parameter(torch.zeros(4, dtype=torch.int8), requires_grad=False)
    with pytest.raises(RewireError, match=r"layers.0.codes is quantised \(Parameter of torch.int8\)"):
        nm.rewire(model, "post", example=example)


def test_sharded_parameters() -> None:
    model, example = stack("pre")
    model.layers[0].first.weight.full_tensor = lambda: None
    with pytest.raises(RewireError, match=r"layers.0.first.weight is sharded"):
        nm.rewire(model, "post", example=example)


def test_compiled_and_wrapped_models() -> None:
    model, example = stack("pre")
    with pytest.raises(RewireError, match="rewire the model, then compile it"):
        nm.rewire(torch.compile(model, backend="eager"), "post", example=example)
    with pytest.raises(RewireError, match="wrapped in DataParallel"):
        nm.rewire(nn.DataParallel(model), "post", example=example)
    with pytest.raises(RewireError, match="rewire the model that it came from"):
        nm.rewire(torch.export.export(model, example), "post", example=example)


def test_a_model_without_weights_is_only_planned() -> None:
    with torch.device("meta"):
        model = Stack("post")
    found = plan(model, "pre", example=(torch.randn(2, 5, 16),))
    assert found.proof == "not replayed"
    assert found.added.count == 32
    with pytest.raises(RewireError, match="meta device holds no weights"):
        nm.rewire(model, "pre", example=(torch.randn(2, 5, 16),), accept_inexact=True)


def test_a_layers_formula_with_other_sublayers() -> None:
    class Sole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.f = nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.f(self.norm(x))

    model = nn.Sequential(Sole(), Sole())
    with pytest.raises(RewireError, match=r"layer with attn and mlp, and layer 1 \(0\) has mlp"):
        nm.rewire(model, "parallel", example=(torch.randn(2, 5, 16),), accept_inexact=True)


def test_a_model_of_jax_without_its_variables() -> None:
    pytest.importorskip("flax")
    model = nm.build(nm.Spec(placement="pre", layers=1, width=8, heads=2), "linen")
    with pytest.raises(ValueError, match="with its variables"):
        nm.rewire(model, "post", example=(None,))


def test_bad_arguments() -> None:
    model, (x,) = stack("pre")
    with pytest.raises(ValueError, match=r"An example is a tuple.*not a Tensor"):
        nm.rewire(model, "post", example=x)
    with pytest.raises(ValueError, match="no placement is called 'prae'"):
        nm.rewire(model, "prae", example=(x,))
    with pytest.raises(RewireError, match="A rule for initial weights is one of"):
        nm.rewire(model, "post", example=(x,), reinit="xavjer")
    with pytest.raises(TypeError, match="optimizer"):
        nm.rewire(model, "post", example=(x,), optimizer=torch.optim.SGD(model.parameters()))


def test_the_rule_for_one_of_three_matrices_in_one() -> None:
    """DeepNorm's rule multiplies the values' matrix, which nn.MultiheadAttention holds together with two others."""
    model, example = encoder()
    with pytest.raises(RewireError, match="in_proj_weight is k, q, v in one matrix"):
        nm.rewire(model, "deepnorm", example=example, reinit="paper")


def test_weights_are_drawn_by_the_papers_rule() -> None:
    model, example = stack("pre", layers=3)
    new = nm.rewire(model, "deepnorm", example=example, reinit="paper", seed=1)
    assert new.rewiring.preserved == "nothing"
    factor = (8 * 3) ** -0.25
    for name, scale in (("q", 1.0), ("k", 1.0), ("v", factor), ("o", factor)):
        drawn = torch.cat([layer.attention.get_parameter(f"{name}.weight").flatten() for layer in new.layers])
        assert float(drawn.std()) == pytest.approx(scale * math.sqrt(2 / 32), rel=0.1)
    assert all(bool((layer.first.weight == 1).all()) and not layer.first.bias.any() for layer in new.layers)
    again = nm.rewire(model, "deepnorm", example=example, reinit="paper", seed=1)
    assert all(torch.equal(*pair) for pair in zip(new.parameters(), again.parameters(), strict=True))
