"""A base model's weights in a model with a head, and the reverse: held against the part that both have."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from normula import guard
from normula.guard.parts import body_of
from tests.guard import models as m


@pytest.fixture
def base(tmp_path: Path) -> Path:
    guard.save(m.randomised(m.encoder(hf.BertModel)), tmp_path / "base", (m.IDS,))
    return tmp_path / "base"


@pytest.fixture
def headed(tmp_path: Path) -> Path:
    guard.save(m.randomised(m.encoder(hf.BertForMaskedLM)), tmp_path / "headed", (m.IDS,))
    return tmp_path / "headed"


def body(seed: int = 5, **settings: Any) -> Any:
    """A BERT without what is on top of it."""
    model = m.encoder(hf.BertModel, seed, **settings)
    return hf.BertModel(model.config, add_pooling_layer=False).eval()


def test_a_body_goes_into_a_model_with_a_head(base: Path) -> None:
    model = m.encoder(hf.BertForSequenceClassification, seed=3)
    head = model.classifier.weight.clone()
    with pytest.warns(UserWarning, match=r"classifier\.weight was missing"):
        found = guard.load(model, base, allow_missing=["classifier.*"])
    assert found.notes == ("it was saved from what this model holds as 'bert'",)
    assert torch.equal(model.bert.pooler.dense.weight, hf.BertModel.from_pretrained(base).pooler.dense.weight)
    assert torch.equal(model.classifier.weight, head)
    guard.verify(model, base)


@pytest.mark.negative
def test_a_head_that_the_body_does_not_have_is_let_through_by_a_pattern_only(base: Path) -> None:
    model = m.encoder(hf.BertForSequenceClassification, seed=3)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(guard.WeightsError, match=r"missing .* classifier\.weight; classifier\.bias"):
        guard.load(model, base)
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())


def test_a_body_takes_what_is_its_own_of_a_model_with_a_head(headed: Path) -> None:
    model = body()
    (note,) = guard.load(model, headed).notes
    assert note.startswith("it was saved from a model that holds this one as 'bert'; left out: cls.predictions.bias;")
    whole = hf.BertForMaskedLM.from_pretrained(headed)
    assert all(torch.equal(whole.bert.state_dict()[name], one) for name, one in model.state_dict().items())


@pytest.mark.negative
def test_another_body_is_refused_in_both_directions(base: Path, headed: Path) -> None:
    with pytest.raises(guard.WeightsError, match="norms are not"):
        guard.load(body(layer_norm_eps=1e-3), headed)
    model = m.encoder(hf.BertForSequenceClassification, layer_norm_eps=1e-3)
    with pytest.raises(guard.WeightsError, match="norms are not"):
        guard.load(model, base, allow_missing=["classifier.*"])


@pytest.mark.negative
def test_the_trap_of_a_flag_is_found_below_a_head(tmp_path: Path) -> None:
    model = m.randomised(m.bloom(True))
    guard.save(model, tmp_path / "headed", (m.IDS,))
    guard.save(model.transformer, tmp_path / "base", (m.IDS,))  # type: ignore[arg-type]
    guard.load(m.bloom(True, seed=2).transformer, tmp_path / "headed")
    guard.load(m.bloom(True, seed=2), tmp_path / "base")  # its head is tied, so nothing is missing
    for loading, path in ((m.bloom(False).transformer, "headed"), (m.bloom(False), "base")):
        with pytest.raises(guard.WeightsError, match=r"saved as .* this model is"):
            guard.load(loading, tmp_path / path)


@pytest.mark.negative
def test_weights_of_a_body_that_compute_something_else_are_found(headed: Path) -> None:
    model = body()
    guard.load(model, headed)
    for layer in model.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU()
    with pytest.raises(guard.WeightsError, match=r"the stream after layer 1 \(encoder\.layer\.0\)"):
        guard.verify(model, headed)


def test_from_pretrained_across_heads(base: Path, headed: Path) -> None:
    with guard.watching(allow_missing=["classifier.*"]) as watch:
        hf.BertForSequenceClassification.from_pretrained(base)
    assert watch.seen[0].notes == ("it was saved from what this model holds as 'bert'",)
    with guard.watching() as watch:
        hf.BertModel.from_pretrained(headed, add_pooling_layer=False)
        with pytest.raises(guard.WeightsError, match=r"classifier\.weight"):
            hf.BertForSequenceClassification.from_pretrained(base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))
    with guard.watching(allow_missing=["classifier.*"]), pytest.raises(guard.WeightsError, match="eps"):
        hf.BertForSequenceClassification.from_pretrained(base)


@pytest.mark.negative
def test_a_state_dict_of_a_body_is_refused_as_torch_would_take_none_of_it(base: Path) -> None:
    tensors = hf.BertModel.from_pretrained(base).state_dict()
    model = m.encoder(hf.BertForSequenceClassification)
    with guard.watching(base), pytest.raises(guard.WeightsError, match=r"holds as 'bert', under names without it"):
        model.load_state_dict(tensors, strict=False)
    with guard.watching(base):
        model.bert.load_state_dict(tensors)


@pytest.mark.parametrize(
    ("whole", "part", "prefix"),
    [
        (["m.a", "m.b", "head"], ["a", "b"], "m"),
        (["m.a", "m.b", "head"], ["a", "b", "pooler"], "m"),
        (["a.x", "b.x"], ["a.x", "b.x"], ""),
        (["m.a", "n.a"], ["b", "c", "a"], ""),
        ([], ["a"], ""),
        (["m.a"], [], ""),
    ],
)
def test_a_prefix_is_one_under_which_most_names_are_found(whole: list[str], part: list[str], prefix: str) -> None:
    assert body_of(whole, part) == prefix
