"""Where people load: inside the context, torch and transformers ask first."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from normula import guard
from tests.guard import models as m

VECTORS = (torch.linspace(-1, 1, 160).mul(7).sin().reshape(2, 5, 16),)


def test_a_state_dict_of_the_same_formula_passes(tmp_path: Path) -> None:
    saved, other = m.stack(False), m.stack(False, seed=1)
    stamp = guard.save(saved, tmp_path / "a.safetensors", VECTORS)
    for what in (stamp, tmp_path / "a.safetensors"):
        with guard.watching(what) as watch:
            other.load_state_dict(saved.state_dict())
        assert [one.formula for one in watch.seen] == [stamp.formula]
    assert torch.equal(other.state_dict()["layers.0.norm1.weight"], saved.state_dict()["layers.0.norm1.weight"])


@pytest.mark.negative
@pytest.mark.parametrize("strict", [True, False])
def test_a_state_dict_of_another_formula_is_refused_before_it_loads(strict: bool) -> None:
    saved, other = m.stack(False), m.stack(True, seed=1)
    before = copy.deepcopy(other.state_dict())
    with guard.watching(guard.stamp(saved, VECTORS)), pytest.raises(guard.WeightsError, match="saved as"):
        other.load_state_dict(saved.state_dict(), strict=strict)
    assert all(torch.equal(before[name], one) for name, one in other.state_dict().items())


@pytest.mark.negative
def test_a_missing_tensor_is_refused_where_torch_would_not_say(tmp_path: Path) -> None:
    saved = m.Home()
    tensors = saved.state_dict()
    del tensors["final.weight"]
    stamp, words = guard.stamp(saved, (m.IDS,)), r"final\.weight, after block 2, before the head"
    with guard.watching(stamp), pytest.raises(guard.WeightsError, match=words):
        m.Home(seed=1).load_state_dict(tensors, strict=False)
    with guard.watching(stamp, allow_missing=["final.*"]) as watch:
        m.Home(seed=1).load_state_dict(tensors, strict=False)
    assert "final.weight was missing" in watch.seen[0].allowed[0]


def test_other_models_are_left_alone() -> None:
    with guard.watching(guard.stamp(m.stack(False), VECTORS)) as watch:
        nn.Linear(3, 3).load_state_dict(nn.Linear(3, 3).state_dict())
    assert watch.skipped == ["load_state_dict of Linear: no stamp is of its tensors"]


def test_everything_is_put_back() -> None:
    def held() -> list[Any]:
        kind = hf.PreTrainedModel.__dict__
        return [nn.Module.load_state_dict, kind["from_pretrained"], kind["save_pretrained"]]

    before = held()
    with pytest.raises(KeyError), guard.watching():
        raise KeyError
    assert held() == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    guard.save(m.randomised(m.bloom(True)), tmp_path / "saved", (m.IDS,))
    return tmp_path / "saved"


def test_from_pretrained_of_a_stamped_folder(folder: Path) -> None:
    with guard.watching() as watch:
        hf.BloomForCausalLM.from_pretrained(folder)
        hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert watch.seen
    assert not watch.skipped


@pytest.mark.negative
def test_from_pretrained_under_a_flag_that_somebody_flipped(folder: Path) -> None:
    with guard.watching(), pytest.raises(guard.WeightsError, match="saved as"):
        hf.BloomForCausalLM.from_pretrained(folder, apply_residual_connection_post_layernorm=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "apply_residual_connection_post_layernorm": False}))
    hf.BloomForCausalLM.from_pretrained(folder)  # the trap: it says nothing
    with guard.watching(), pytest.raises(guard.WeightsError, match="saved as"):
        hf.BloomForCausalLM.from_pretrained(folder)


def test_accelerate_is_asked_too(folder: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    with guard.watching() as watch:
        accelerate.load_checkpoint_in_model(m.bloom(True), str(folder))
        with accelerate.init_empty_weights():
            empty, other = m.bloom(True), m.bloom(False)
        empty.tie_weights()
        accelerate.load_checkpoint_and_dispatch(empty, str(folder), device_map={"": "cpu"})
        for load in (accelerate.load_checkpoint_in_model, accelerate.load_checkpoint_and_dispatch):
            with pytest.raises(guard.WeightsError, match="saved as"):
                load(m.bloom(False), str(folder))
        with pytest.raises(guard.WeightsError, match="saved as"):
            accelerate.load_checkpoint_and_dispatch(other, str(folder), device_map={"": "cpu"})
    assert len(watch.seen) == 2


def test_what_accelerate_reads_is_held_against_the_stamp_that_is_given(folder: Path) -> None:
    modeling = pytest.importorskip("accelerate.utils.modeling")
    tensors = modeling.load_state_dict(str(folder / "model.safetensors"))
    with guard.watching(folder) as watch:
        m.bloom(True).load_state_dict(tensors, strict=False)
        with pytest.raises(guard.WeightsError, match="saved as"):
            m.bloom(False).load_state_dict(tensors, strict=False)
    assert len(watch.seen) == 1
