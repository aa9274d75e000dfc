"""What a model is used for works after a rewiring: generation, checkpoints, compilers, files, threads, training."""

import io
import subprocess
import sys
from copy import deepcopy
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normula as nm
from tests.rewire.models import Block, encoder, stack, transformer


def gpt2(to: str = "peri", **options: Any) -> tuple[Any, torch.Tensor]:
    pytest.importorskip("transformers")
    options = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, **options}
    model, example = transformer("GPT2LMHeadModel", **options)
    return nm.rewire(model, to, example=example, accept_inexact=True), example["input_ids"]


@pytest.mark.parametrize("to", ["post", "peri", "sub-ln"])
def test_generation_with_a_cache_is_generation_without(to: str) -> None:
    new, ids = gpt2(to)
    kept = new(ids, use_cache=True)
    more = torch.randint(3, 100, (2, 3))
    whole = new(torch.cat((ids, more), 1)).logits[:, 8:]
    assert torch.allclose(new(more, past_key_values=kept.past_key_values).logits, whole, atol=1e-5)
    chosen = [new.generate(ids, max_new_tokens=5, do_sample=False, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*chosen)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpoints_give_the_same_gradients(reentrant: bool) -> None:
    new, ids = gpt2()
    new.train()

    def gradients() -> dict[str, torch.Tensor]:
        new.zero_grad()
        new(ids, labels=ids).loss.backward()
        return {name: one.grad.clone() for name, one in new.named_parameters()}

    plain = gradients()
    new.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    again = gradients()
    assert all(torch.allclose(again[name], one, atol=1e-7) for name, one in plain.items())
    assert any("norm_out" in name and bool(one.any()) for name, one in again.items())


def test_dropout_is_drawn_on_the_branches() -> None:
    """In training mode a branch is dropped out before the formula reads it; with all of it dropped, x is left."""
    model, (x,) = encoder(norm_first=True, dropout=0.5)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True).train()
    for module in new.modules():
        if isinstance(module, nn.Dropout):
            module.p = 1.0
    y = x
    for layer in new.layers:
        for norm in (layer.norm1, layer.norm2):
            y = nn.functional.layer_norm(y, (16,), norm.weight, norm.bias, norm.eps)
    assert torch.allclose(new(x), y, atol=1e-6)


COMPILED = """
import torch
from torch import nn
import normula as nm
from tests.rewire.models import transformer

options = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
model, example = transformer("GPT2LMHeadModel", **options)
new, ids = nm.rewire(model, "peri", example=example, accept_inexact=True), example["input_ids"]
compiled = torch.compile(new, backend="aot_eager", fullgraph=True)
assert torch.allclose(compiled(ids).logits, new(ids).logits, atol=1e-6)
new(ids).logits.square().mean().backward()
plain = {name: one.grad.clone() for name, one in new.named_parameters()}
new.zero_grad()
compiled(ids).logits.square().mean().backward()
assert all(torch.allclose(one.grad, plain[name], atol=1e-6) for name, one in new.named_parameters())
"""

BROKEN = """
import torch
from torch import nn
import normula as nm

class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        h = self.up(self.norm(x)).relu()
        torch._dynamo.graph_break()
        return x + self.down(h)

torch.manual_seed(0)
model, x = nn.Sequential(Breaking(), Breaking(), nn.LayerNorm(16)), torch.randn(2, 5, 16)
new = nm.rewire(model, "peri", example=(x,), accept_inexact=True)
assert torch.allclose(torch.compile(new, backend="eager")(x), new(x), atol=1e-6)
"""


@pytest.mark.parametrize("code", [COMPILED, BROKEN], ids=["one graph", "a graph that breaks inside a layer"])
def test_compiled_it_computes_the_same(code: str) -> None:
    """In a process of its own: annotations that are checked when code runs are none that a compiler goes through."""
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_path_of_pytorchs_encoder_does_not_run_the_old_placement(training: bool, masked: bool) -> None:
    model, (x,) = encoder(dropout=0.0)
    new = nm.rewire(model.eval(), "pre", example=(x,), accept_inexact=True)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 4] = masked
    options = {"src_key_padding_mask": mask} if masked else {}
    new.train(training)
    with torch.no_grad():
        found = new(x, **options)
    wanted = new.train()(x, **options)
    assert torch.allclose(found[~mask], wanted[~mask], atol=1e-6)
    old, _ = encoder(dropout=0.0)
    assert not torch.allclose(found, old.train()(x), atol=1e-2)
    assert nm.read(new.train(training), x).stages[0].names[0] == "pre"


def test_copies_and_files_hold_the_same_model() -> None:
    new, ids = gpt2()
    wanted = new(ids).logits
    assert torch.equal(deepcopy(new)(ids).logits, wanted)
    file = io.BytesIO()
    torch.save(new, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(ids).logits, wanted)
    other, _ = gpt2()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.load_state_dict(new.state_dict())
    assert torch.equal(other(ids).logits, wanted)


def test_a_copy_has_parameters_of_its_own() -> None:
    new, ids = gpt2()
    before, copy = new(ids).logits, deepcopy(new)
    with torch.no_grad():
        copy.transformer.h[0].ln_1.weight.mul_(2)
        copy.transformer.h[0].attn_norm_out.weight.mul_(2)
    assert torch.equal(new(ids).logits, before)
    assert not torch.allclose(copy(ids).logits, before, atol=1e-3)


def test_tied_weights_stay_tied_and_names_stay() -> None:
    pytest.importorskip("transformers")
    model, example = transformer("GPT2LMHeadModel")
    new = nm.rewire(model, "post", example=example, accept_inexact=True)
    assert new.lm_head.weight is new.transformer.wte.weight
    kept = {name for name, _ in new.named_parameters()}
    assert {name for name, _ in model.named_parameters()} - kept == {"transformer.ln_f.weight", "transformer.ln_f.bias"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_it_moves_to_other_types(dtype: torch.dtype) -> None:
    new, ids = gpt2()
    moved = deepcopy(new).to(dtype)
    assert moved(ids).logits.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.1
    assert torch.allclose(moved(ids).logits.float(), new(ids).logits, atol=tolerance)


class Sharing(nn.Module):
    """Layers that share an MLP and are held twice, with a norm of the batch beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block("pre") for _ in range(2))
        self.layers[1].mlp = self.layers[0].mlp
        self.again = nn.ModuleList(self.layers)
        self.batch, self.last = nn.BatchNorm1d(16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        self.batch(x.transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def test_the_model_stays_as_it_was_where_modules_are_shared_and_in_training() -> None:
    torch.manual_seed(0)
    model, x = Sharing().train(), torch.randn(2, 5, 16)
    before, states = {name: one.clone() for name, one in model.state_dict().items()}, torch.get_rng_state()
    same = nm.rewire(model, "pre", example=(x,))
    nm.rewire(model, "post", example=(x,), accept_inexact=True)
    assert torch.equal(states, torch.get_rng_state())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert same.rewiring.preserved == "function"
    assert all(torch.equal(one, before[name]) for name, one in same.state_dict().items())
    assert torch.equal(same.eval()(x), model.eval()(x))


class Checkpointing(nn.Module):
    """A layer that computes all of itself once more in its backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = Block("pre"), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self._all, x, use_reentrant=self.reentrant)

    def _all(self, x: Tensor) -> Tensor:
        block = self.block
        x = x + block.attention(block.first(x))
        return x + block.mlp(block.second(x))


@pytest.mark.negative
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_inside_of_a_layer_is_an_error_and_not_another_gradient(reentrant: bool) -> None:
    model = nn.Sequential(Checkpointing(reentrant), Checkpointing(reentrant)).train()
    x = torch.randn(2, 5, 16)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    with pytest.raises(RuntimeError, match="around the whole module"):
        new(x.requires_grad_())


def test_it_trains() -> None:
    new, ids = gpt2("post")
    new.train()
    optimiser = torch.optim.AdamW(new.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        optimiser.zero_grad()
        loss = new(ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.5


def test_threads_do_not_disturb_one_another() -> None:
    model, (x,) = stack("pre")
    new = nm.rewire(model, "peri", example=(x,), accept_inexact=True)
    wanted, found = new(x), []
    threads = [Thread(target=lambda: found.append(new(x))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert all(torch.equal(one, wanted) for one in found)


def test_another_path_than_the_one_that_was_read_is_refused_when_it_is_taken() -> None:
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.f, self.skips = nn.LayerNorm(16), nn.Linear(16, 16), True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.f(self.norm(x).relu())
            return x + y if self.skips else y

    torch.manual_seed(0)
    model, x = nn.Sequential(Choosing(), Choosing()), torch.randn(2, 5, 16)
    new = nm.rewire(model, "post", example=(x,), accept_inexact=True)
    new[1].skips = False
    with pytest.raises(RuntimeError, match="another path"):
        new(x)


def test_a_copy_of_an_own_model_is_rewired_as_it_is() -> None:
    """Layers of a built model are graph modules, which copy themselves in a way of their own."""
    model = nm.build(nm.Spec(placement="post", layers=2, width=16, heads=2, vocab=20)).double()
    ids = torch.arange(10).view(2, 5)
    new = nm.rewire(model, "pre", example=(ids,), accept_inexact=True)
    assert torch.equal(deepcopy(new)(ids), new(ids))
    back = nm.rewire(new, "post", example=(ids,), accept_inexact=True)
    assert torch.allclose(back(ids), model(ids), atol=1e-12)
