"""Training in PyTorch beyond what both frameworks do: modules of the user's, generators, states."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from normula.data import task
from normula.spec import Recipe
from normula.torch import build, train
from normula.torch.train import optimiser

COPY = task("copy")
RECIPE = Recipe(steps=4, lr=1e-2, batch=4)


class Own(nn.Module):
    """A model that knows nothing of specs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 12)
        self.positions = nn.Parameter(0.1 * torch.ones(8, 12))
        self.both = nn.LayerNorm((8, 12))
        self.mix = nn.MultiheadAttention(12, 2, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.frozen = nn.Parameter(torch.eye(12), requires_grad=False)
        self.unused = nn.Linear(3, 3)
        self.out = nn.Linear(12, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.both(self.table(ids) + self.positions)
        x = x + self.drop(self.mix(x, x, x, need_weights=False)[0])
        return self.out(x @ self.frozen)


class Answering(nn.Module):
    """A model that answers as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Own()

    def forward(self, ids: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.inner(ids))


def own(kind: type[nn.Module] = Own) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind()


def test_a_module_of_the_users_learns_in_place() -> None:
    model = own()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    found = train(model, COPY, replace(RECIPE, steps=80), looks=[0, 3])
    assert found.loss < found.curve[0] / 2
    assert found.accuracy > 0.9
    changed = {name for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert changed == {name for name in before if not name.startswith(("frozen", "unused"))}
    assert [snapshot.gradients for snapshot in found.snapshots] == [(), ()]  # it has no layers to tell
    assert found.snapshots[0].gradient > 0


def test_an_answer_with_logits_is_taken() -> None:
    assert train(own(Answering), COPY, RECIPE).curve == train(own(), COPY, RECIPE).curve


def test_a_module_of_the_users_goes_on_where_it_stopped() -> None:
    whole = train(own(), COPY, RECIPE)
    half = train(own(), COPY, RECIPE, until=2)
    end = train(own(), COPY, RECIPE, state=half.state)
    assert replace(end, seconds=0.0) == replace(whole, seconds=0.0)


def test_modes_of_submodules_are_left_as_they_are() -> None:
    model = own()
    modes = []

    def observe(step: int, model: nn.Module) -> None:
        model.get_submodule("drop").eval()
        modes.append({name: module.training for name, module in model.named_modules()})

    train(model, COPY, RECIPE, observe=observe, looks=[0, 1, 2, 3])
    assert modes == [modes[0]] * 5
    assert not modes[0]["drop"]
    assert modes[0]["mix"]


@pytest.mark.parametrize(
    ("name", "decays"),
    [
        ("table.weight", False),
        ("positions", True),  # nothing tells it from a matrix
        ("both.weight", False),
        ("both.bias", False),
        ("mix.in_proj_weight", True),
        ("mix.in_proj_bias", False),
        ("out.weight", True),
        ("out.bias", False),
    ],
)
def test_which_parameters_of_the_users_are_decayed(name: str, decays: bool) -> None:
    model = own()
    parameter = model.get_parameter(name)
    groups = optimiser(model, replace(RECIPE, weight_decay=0.1)).param_groups
    [decay] = [group["weight_decay"] for group in groups if any(one is parameter for one in group["params"])]
    assert decay == (0.1 if decays else 0.0)


def test_a_parameter_that_is_frozen_is_no_ones() -> None:
    model = own()
    groups = optimiser(model, replace(RECIPE, weight_decay=0.1)).param_groups
    assert not any(one is model.frozen for group in groups for one in group["params"])


def test_the_callers_generator_stays_and_does_not_matter() -> None:
    one = COPY.spec(layers=1, width=8, heads=2, dropout=0.5)
    curves = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        curves.append(train(one, COPY, RECIPE).curve)
        assert torch.equal(torch.get_rng_state(), before)
    assert curves[0] == curves[1]
    assert train(one, COPY, replace(RECIPE, seed=1)).curve != curves[0]


def test_a_state_holds_nothing_but_tensors_and_plain_values() -> None:
    state = train(COPY.spec(layers=1, width=8, heads=2), COPY, RECIPE, until=2).state
    assert state is not None
    assert torch.load(io.BytesIO(state), weights_only=True).keys() == {"model", "optimiser", "generators", "course"}


def test_a_built_model_trains_as_its_spec() -> None:
    one = COPY.spec(layers=1, width=8, heads=2)
    model = build(one)
    assert train(model, COPY, RECIPE).curve == train(one, COPY, RECIPE).curve
    assert train(model, COPY, RECIPE).curve != train(one, COPY, RECIPE).curve  # it went on from what it had learnt


@pytest.mark.negative
def test_a_state_of_another_model_is_refused() -> None:
    state = train(COPY.spec(layers=1, width=8, heads=2), COPY, RECIPE, until=2).state
    with pytest.raises(ValueError, match="layers"):
        train(COPY.spec(layers=2, width=8, heads=2), COPY, RECIPE, state=state)
