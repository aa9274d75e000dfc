"""Files without a stamp: which placement they were trained with, how sure that is, and when it cannot be told."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import save_file
from torch import Tensor, nn

from normula import guard
from normula.guard.verdict import verdict
from normula.record.evidence import Candidate
from tests.guard import models as m

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
AFTER = "n = norm(x); n = norm(n + attn(n)); x = n + mlp(n)"


def counting(rows: int, seed: int = 0) -> Tensor:
    """Rows that count up from anywhere: what comes next can be learned in a few steps."""
    starts = torch.randint(0, 32, (rows, 1), generator=torch.Generator().manual_seed(seed))
    return (starts + 3 * torch.arange(10)) % 32


def trained(model: nn.Module, steps: int = 150) -> nn.Module:
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    for step in range(steps):
        ids = counting(16, step)
        output = model(ids)
        logits = getattr(output, "logits", output)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def unstamped(model: nn.Module, path: Path) -> Path:
    save_file({name: one.clone() for name, one in model.state_dict().items()}, path)
    return path


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that were trained with BLOOM's residual after the norm."""
    return unstamped(trained(m.bloom(True)), tmp_path_factory.mktemp("bloom") / "a.safetensors")


@pytest.mark.parametrize("flag", [False, True])
def test_the_flag_that_weights_were_trained_with_is_found_whichever_the_model_has(after: Path, flag: bool) -> None:
    found = guard.check(after, m.bloom(flag, seed=3), batch={"input_ids": counting(16, 999)})
    assert found.sure == "behaviour"
    assert AFTER in found.formula
    assert {AFTER in one.formula for one in found.candidates} == {True, False}
    assert "16 sequences" in found.reasons[0]
    assert found.chance_nats == pytest.approx(3.4657, abs=1e-3)  # ln 32


@pytest.mark.negative
def test_without_a_batch_equal_tensors_cannot_be_told(after: Path) -> None:
    found = guard.check(after, m.bloom(False))
    assert (found.formula, found.sure) == ("", "no")
    assert "only a calibration batch" in " ".join(found.reasons)


@pytest.mark.negative
@pytest.mark.parametrize("make", [m.bloom, lambda flag: m.stack_of_ids(flag)])
def test_weights_that_were_not_trained_cannot_be_told(make: Callable[[bool], nn.Module], tmp_path: Path) -> None:
    path = unstamped(make(True), tmp_path / "a.safetensors")
    found = guard.check(path, make(False), batch={"input_ids": counting(16)})
    assert (found.formula, found.sure) == ("", "no")
    assert "no better than guessing" in " ".join(found.reasons)
    assert "as they start" in " ".join(found.reasons)


@pytest.mark.negative
def test_a_batch_that_the_weights_do_not_know_cannot_tell(after: Path) -> None:
    noise = torch.randint(0, 32, (16, 10), generator=torch.Generator().manual_seed(5))
    found = guard.check(after, m.bloom(False), batch={"input_ids": noise})
    assert (found.formula, found.sure) == ("", "no")


@pytest.mark.negative
def test_too_few_sequences_cannot_tell(after: Path) -> None:
    found = guard.check(after, m.bloom(False), batch={"input_ids": counting(2)})
    assert (found.formula, found.sure) == ("", "no")
    assert "sequences" in " ".join(found.reasons)


def test_a_model_is_as_it_was_after_all_its_flags_were_tried(after: Path) -> None:
    model = m.bloom(False)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    guard.check(after, model, batch={"input_ids": counting(8)})
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert not any(getattr(one, "apply_residual_connection_post_layernorm", False) for one in model.modules())


def test_a_flag_of_live_modules_is_tried(tmp_path: Path) -> None:
    path = unstamped(trained(m.stack_of_ids(True)), tmp_path / "a.safetensors")
    found = guard.check(path, m.stack_of_ids(False, seed=2), batch={"input_ids": counting(16, 999)})
    assert (found.sure, PRE in found.formula) == ("behaviour", True)
    assert [one.name for one in found.candidates] == ["as it is", "norm_first=True"]


def test_norms_that_are_there_decide_without_a_batch(tmp_path: Path) -> None:
    path = unstamped(m.randomised(m.opt()), tmp_path / "a.safetensors")
    found = guard.check(path, m.opt(do_layer_norm_before=False))
    assert found.sure == "tensors"
    assert f"{PRE}); final norm(x)" in found.formula
    assert "final_layer_norm" in " ".join(found.reasons)


@pytest.mark.negative
def test_tensors_of_another_model_fit_nothing(tmp_path: Path) -> None:
    path = unstamped(m.encoder(hf.MegatronBertModel), tmp_path / "a.safetensors")
    found = guard.check(path, m.encoder(hf.BertModel))
    assert (found.formula, found.sure) == ("", "no")
    assert "fit no candidate" in found.reasons[0]
    assert "encoder.ln" in found.reasons[1]


def test_candidates_of_ones_own(tmp_path: Path) -> None:
    path = unstamped(trained(m.Home("normalised residual")), tmp_path / "a.safetensors")
    ids = counting(16, 999)
    batch = {"input_ids": ids, "labels": torch.cat([ids[:, 1:], torch.full((16, 1), -100)], 1)}  # it is not causal
    found = guard.check(path, m.Home("post"), batch=batch, others={"residual after": m.Home("normalised residual")})
    assert found.sure == "behaviour"
    assert AFTER in found.formula


def test_a_loss_of_ones_own_and_a_file_with_a_stamp(tmp_path: Path) -> None:
    model = m.stack(False)
    guard.save(model, tmp_path / "a.safetensors", (torch.ones(2, 5, 16),))

    def loss(output: Any) -> Tensor:
        return output.square().mean((1, 2))

    found = guard.check(tmp_path / "a.safetensors", m.stack(True), batch={"src": torch.randn(4, 5, 16)}, loss=loss)
    assert found.sure == "stamp"
    assert "norm(x + attn(x))" in found.formula
    assert all(len(one.losses_nats) == 4 for one in found.candidates)


class Plain(nn.Module):
    """A model of one's own: its class decides where its norms stand, and no flag speaks of it."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)
            self.places = nn.Parameter(torch.randn(8, 16))
            self.blocks = nn.ModuleList(m.Block(kind) for _ in range(3))
            for one in self.blocks.parameters():
                if one.dim() > 1:
                    nn.init.xavier_uniform_(one)
        self.eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def words(rows: int, seed: int) -> Tensor:
    return torch.randint(0, 32, (rows, 8), generator=torch.Generator().manual_seed(seed))


def copied(kind: str, *, backwards: bool, rate: float) -> nn.Module:
    """A model that has learned to copy its input, or to say it backwards, where tokens must be mixed."""
    model = Plain(kind)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for step in range(150):
        ids = words(16, step)
        wanted = ids.flip(1) if backwards else ids
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


PLAIN = {
    "post": "3 x (x = norm(x + attn(x)); x = norm(x + mlp(x)))",
    "pre": f"3 x ({PRE})",
    "normalised residual": f"3 x ({AFTER})",
}


@pytest.mark.parametrize("kind", PLAIN)
def test_without_a_flag_rewired_copies_of_the_model_find_the_placement(kind: str, tmp_path: Path) -> None:
    path = unstamped(copied(kind, backwards=True, rate=1e-2), tmp_path / "a.safetensors")
    ids = words(64, 999)
    for own in ("pre", "post"):
        model = Plain(own, seed=3)
        before = copy.deepcopy(model.state_dict())
        found = guard.check(path, model, batch={"input_ids": ids, "labels": ids.flip(1)})
        assert (found.sure, found.formula) == ("behaviour", PLAIN[kind])
        assert {one.formula for one in found.candidates if one.fits} == set(PLAIN.values())
        assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())


@pytest.mark.parametrize("kind", ["post", "pre"])
def test_so_do_they_on_a_copy_task_where_another_placement_may_have_the_lower_loss(kind: str, tmp_path: Path) -> None:
    path = unstamped(copied(kind, backwards=False, rate=3e-3), tmp_path / "a.safetensors")
    found = guard.check(path, Plain("pre", seed=3), batch={"input_ids": words(64, 999)})
    assert (found.sure, found.formula) == ("behaviour", PLAIN[kind])
    assert "at the same loudness" in found.reasons[0]


@pytest.mark.negative
def test_what_a_batch_does_not_tell_apart_is_left_open_and_the_rest_is_ruled_out() -> None:
    def one(name: str, loss: float) -> Candidate:
        each = tuple(loss + 0.01 * (-1) ** number for number in range(16))
        return Candidate(name=name, formula=f"formula of {name}", fits=True, losses_nats=each)

    tried = [one("near", 1.0), one("nearer", 0.999), one("far", 2.0)]
    formula, sure, reasons = verdict(tried, np.log(32), has_batch=True)
    assert (formula, sure) == ("", "no")
    assert reasons[0].startswith(
        "far can be ruled out, and between formula of nearer or formula of near it cannot be told"
    )


@pytest.mark.negative
def test_rewired_copies_of_a_model_that_was_not_trained_tell_nothing(tmp_path: Path) -> None:
    path = unstamped(Plain("post"), tmp_path / "a.safetensors")
    found = guard.check(path, Plain("pre", seed=3), batch={"input_ids": words(64, 999)})
    assert (found.formula, found.sure) == ("", "no")
    assert "no better than guessing" in found.reasons[1]
    assert len([one for one in found.candidates if one.fits]) == 3


def test_louder_logits_are_no_better_ones(tmp_path: Path) -> None:
    class Louder(Plain):
        def forward(self, input_ids: Tensor) -> Tensor:
            return 10 * super().forward(input_ids)

    path = unstamped(copied("pre", backwards=False, rate=3e-3), tmp_path / "a.safetensors")
    found = guard.check(path, Plain("pre"), batch={"input_ids": words(64, 999)}, others={"louder": Louder("pre")})
    losses = {one.name: one for one in found.candidates}
    assert losses["louder"].losses_nats < losses["as it is"].losses_nats  # by its loudness alone
    np.testing.assert_allclose(losses["louder"].even_nats, losses["as it is"].even_nats, atol=1e-4)


@pytest.mark.negative
def test_a_batch_that_does_not_go_through_the_model_is_refused(after: Path) -> None:
    with pytest.raises(ValueError, match=r"the batch \(ids\) does not go through the model"):
        guard.check(after, m.bloom(True), batch={"ids": counting(8)})
