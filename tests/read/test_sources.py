import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import normula as nm
from normula.torch.sources import SourceError, parse_input, source
from normula.torch.sources.fields import kind, parts
from normula.torch.sources.hf import config_of
from normula.torch.sources.shrink import scales, shrink
from normula.torch.sources.timm import _size


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


# ---- model types


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("gpt2", {"input_ids"}),
        ("bert", {"input_ids"}),
        ("gemma3_text", {"input_ids"}),
        ("deepseek_v3", {"input_ids"}),
        ("jamba", {"input_ids"}),
        ("t5", {"input_ids", "decoder_input_ids"}),
        ("whisper", {"input_features", "decoder_input_ids"}),
        ("wav2vec2", {"input_values"}),
        ("vit", {"pixel_values"}),
        ("swin", {"pixel_values"}),
        ("detr", {"pixel_values"}),
        ("clip", {"input_ids", "pixel_values"}),
        ("bros", {"input_ids", "bbox"}),
        ("informer", {"past_values", "past_time_features", "past_observed_mask"}),
    ],
)
def test_a_model_type_becomes_a_tiny_model_that_runs(name: str, inputs: set[str]) -> None:
    found = source(f"hf:{name}", tiny=True)

    assert inputs <= set(found.kwargs)
    assert isinstance(found.model, nn.Module)
    assert not found.model.training
    assert "twin" in found.note
    assert sum(p.numel() for p in found.model.parameters()) < 10_000_000
    with torch.no_grad():
        found.model(*found.args, **found.kwargs)


def test_a_small_model_is_made_as_it_is() -> None:
    found = source("hf:vit_msn", {"pixel_values": (1, 3, 224, 224)}, tiny=True)
    assert found.kwargs["pixel_values"].shape == (1, 3, 224, 224)


def test_a_large_model_holds_no_weights_and_has_a_twin() -> None:
    found = source("hf:gpt2")

    assert isinstance(found.model, nn.Module)
    assert all(parameter.is_meta for parameter in found.model.parameters())
    assert found.kwargs["input_ids"].is_meta
    assert len(found.model.get_submodule("h")) == 12  # type: ignore[arg-type]
    assert found.twin is not None
    assert isinstance(found.twin.model, nn.Module)
    with torch.no_grad():
        found.twin.model(**found.twin.kwargs)


def test_the_same_text_gives_the_same_weights_and_inputs_and_leaves_the_random_state() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, two = source("hf:gpt2", tiny=True), source("hf:gpt2", tiny=True)

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.kwargs["input_ids"], two.kwargs["input_ids"])
    assert isinstance(one.model, nn.Module)
    assert isinstance(two.model, nn.Module)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


def test_a_given_input_replaces_the_guessed_one() -> None:
    found = source("hf:bert", dict([parse_input("input_ids=1x5"), parse_input("attention_mask=1x5")]), tiny=True)
    assert {name: tuple(value.shape) for name, value in found.kwargs.items()} == {
        "input_ids": (1, 5),
        "attention_mask": (1, 5),
    }


# ---- shrinking


def test_a_twin_keeps_what_was_equal_and_divisible() -> None:
    config = config_of("llama")
    small = shrink(config, next(iter(scales(config))))

    assert small.hidden_size < config.hidden_size
    assert small.hidden_size == small.num_attention_heads * small.head_dim
    assert small.num_attention_heads % small.num_key_value_heads == 0
    assert small.vocab_size == 256
    assert config.vocab_size == 32000


def test_a_twin_keeps_layers_of_every_sort() -> None:
    config = config_of("gemma3_text")
    small = shrink(config, next(iter(scales(config))))

    assert set(small.layer_types) == set(config.layer_types)
    assert len(small.layer_types) == small.num_hidden_layers < config.num_hidden_layers


def test_a_twin_of_a_mixture_keeps_its_dense_layers_and_its_groups() -> None:
    config = config_of("deepseek_v3")
    small = shrink(config, next(iter(scales(config))))

    assert 0 < small.first_k_dense_replace < small.num_hidden_layers
    assert small.n_routed_experts // small.n_group >= 2
    assert small.num_experts_per_tok <= small.topk_group * small.n_routed_experts // small.n_group


def test_special_tokens_stay_inside_a_small_vocabulary() -> None:
    config = config_of("llava")
    small = shrink(config, next(iter(scales(config))))

    assert small.image_token_index < 256
    assert all(fields.get("vocab_size", 0) <= 256 for fields in parts(small))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("num_attention_heads", "heads"),
        ("n_head", "heads"),
        ("head_dim", "head width"),
        ("d_kv", "head width"),
        ("d_model", "width"),
        ("moe_intermediate_size", "width"),
        ("vocab_size", "vocabulary"),
        ("n_routed_experts", "experts"),
        ("num_experts_per_tok", "choices"),
        ("image_size", "image"),
        ("num_hidden_layers", ""),
        ("max_position_embeddings", ""),
        ("type_vocab_size", ""),
        ("conv_kernel_size", ""),
    ],
)
def test_a_field_is_known_by_the_words_of_its_name(name: str, what: str) -> None:
    assert kind(name) == what


# ---- configs in files


def write(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


SMALL = {"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 120}


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_local_config_is_read_from_its_file_or_folder(tmp_path: Path, as_folder: bool) -> None:
    file = write(tmp_path, SMALL)
    found = source(f"hf:{tmp_path if as_folder else file}")

    assert found.twin is None  # small enough to be made with weights
    assert isinstance(found.model, nn.Module)
    assert len(found.model.get_submodule("h")) == 3  # type: ignore[arg-type]
    assert found.kwargs["input_ids"].shape == (2, 8)


def refusal(text: str, inputs: dict[str, Any] | None = None) -> str:
    with pytest.raises(SourceError) as error:
        source(text, inputs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.negative
def test_an_unknown_model_type_is_told_the_nearest() -> None:
    assert "did you mean 'gpt2'?" in refusal("hf:gtp2")


@pytest.mark.negative
def test_a_hub_name_without_a_network_says_what_to_pass_instead() -> None:
    said = refusal("hf:nobody/nothing")
    assert "HF_HUB_OFFLINE is set" in said
    assert "pass a model type such as hf:gpt2, a config.json, or a folder with one" in said


@pytest.mark.negative
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gptt2"}, "did you mean 'gpt2'?"),
        ({"model_type": "own", "auto_map": {"AutoModel": "own.py--Own"}}, "code of its own, which is never run"),
        ({"hidden_size": 3}, "does not say its model_type"),
        ([], "a config is a JSON object"),
    ],
)
def test_a_config_of_no_known_type_is_refused(tmp_path: Path, config: Any, said: str) -> None:
    assert said in refusal(f"hf:{write(tmp_path, config)}")


@pytest.mark.negative
def test_what_is_no_config_is_refused(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(f"hf:{tmp_path}")
    assert "there is no file" in refusal("hf:./missing/config.json")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "is no JSON" in refusal(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "weights are never loaded" in refusal(f"hf:{tmp_path / 'model.safetensors'}")


@pytest.mark.negative
def test_an_input_that_the_model_does_not_take_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL)
    assert "takes no input 'input_idz'; did you mean 'input_ids'?" in refusal(f"hf:{file}", {"input_idz": (2, 8)})


@pytest.mark.negative
def test_inputs_that_do_not_run_are_refused_with_what_the_model_said(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL)
    said = refusal(f"hf:{file}", {"inputs_embeds": (2, 8, 7), "input_ids": (2, 8)})
    assert "pass them as --input name=shape" in said
    assert "You cannot specify both input_ids and inputs_embeds" in said


# ---- inputs as text


@pytest.mark.parametrize(
    ("text", "name", "shape", "dtype"),
    [
        ("input_ids=2x8", "input_ids", (2, 8), torch.long),
        ("pixel_values=1x3x32x32", "pixel_values", (1, 3, 32, 32), torch.float32),
        ("attention_mask=2x8", "attention_mask", (2, 8), torch.long),
        ("mask=2x8:bool", "mask", (2, 8), torch.bool),
        ("state=2,5:int", "state", (2, 5), torch.long),
        ("x=4:bfloat16", "x", (4,), torch.bfloat16),
    ],
)
def test_an_input_is_read_from_its_text(text: str, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found, ask = parse_input(text)
    tensor = ask.tensor(seed=0)
    assert (found, tuple(tensor.shape), tensor.dtype) == (name, shape, dtype)


@pytest.mark.negative
@pytest.mark.parametrize(
    "text", ["input_ids", "input_ids=", "=2x8", "input_ids=2x", "a b=2", "ids=2x0", "ids=2x8:text"]
)
def test_a_text_that_is_no_input_is_refused(text: str) -> None:
    with pytest.raises(SourceError):
        parse_input(text)


# ---- factories


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def with_inputs() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Doubling(), (torch.ones(2, 3),)


def with_named_inputs() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return Doubling(), {"x": torch.ones(2, 3)}


def of_ids() -> nn.Module:
    """Built here, of a vocabulary that is smaller than ids are first drawn from."""
    return nm.build(nm.Spec(placement="post", layers=1, width=8, heads=2, vocab=17, causal=True))


def failing() -> nn.Module:
    raise RuntimeError("out of ideas")


def three() -> int:
    return 3


def test_a_factory_makes_the_model_and_its_inputs() -> None:
    found = source(f"{__name__}:with_inputs")
    assert isinstance(found.model, Doubling)
    assert torch.equal(found.args[0], torch.ones(2, 3))
    assert source(f"{__name__}:with_named_inputs").kwargs.keys() == {"x"}


def test_a_factory_without_inputs_takes_them_from_the_user_or_they_are_guessed() -> None:
    assert source(f"{__name__}:Doubling", {"x": (4, 2)}).kwargs["x"].shape == (4, 2)
    assert set(source(f"{__name__}:Doubling").kwargs) == {"x"}


@pytest.mark.usefixtures("unchecked")
def test_ids_are_guessed_where_a_stack_of_ours_takes_them() -> None:
    found = source(f"{__name__}:of_ids")
    assert found.model(**found.kwargs).shape[-1] == 17


@pytest.mark.negative
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("failing", "failed (RuntimeError: out of ideas)"),
        ("three", "returned a int; it must return a module"),
        ("SMALL", "is a dict, not a function"),
        ("with_input", "did you mean 'with_inputs'?"),
    ],
)
def test_what_is_no_factory_is_refused(name: str, said: str) -> None:
    assert said in refusal(f"{__name__}:{name}")


@pytest.mark.negative
def test_a_module_that_is_not_there_is_refused() -> None:
    assert "there is no module 'nowhere'" in refusal("nowhere:factory")


# ---- programs


@pytest.fixture
def program(tmp_path: Path) -> Path:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    file = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(model, (torch.ones(2, 3, 8),)), file)
    return file


def test_an_exported_program_comes_back_with_its_inputs(program: Path) -> None:
    found = source(str(program))
    assert isinstance(found.model, torch.export.ExportedProgram)
    assert found.args[0].shape == (2, 3, 8)
    assert found.model.module()(*found.args).shape == (2, 3, 8)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.negative
@pytest.mark.parametrize("part", ["sample_inputs", "weight"])
def test_a_program_that_hides_a_pickle_is_refused(program: Path, tmp_path: Path, part: str) -> None:
    buffer = io.BytesIO()
    torch.save({"bomb": Bomb()}, buffer)
    armed = tmp_path / "armed.pt2"
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(armed, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if part == "sample_inputs" and "sample_inputs" in entry.filename:
                data = buffer.getvalue()
            if part == "weight" and "weight_0" in entry.filename:
                data = buffer.getvalue()
            if part == "weight" and entry.filename.endswith("weights_config.json"):
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            new.writestr(entry.filename, data)
    refusal(str(armed))


@pytest.mark.negative
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".pkl"])
def test_files_that_may_be_pickles_are_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(pickle.dumps(Bomb()))
    assert "pickles are never loaded" in refusal(str(file))


@pytest.mark.negative
def test_a_file_that_is_no_program_is_refused(tmp_path: Path, program: Path) -> None:
    assert "there is no file" in refusal(str(tmp_path / "missing.pt2"))
    (tmp_path / "text.pt2").write_text("no program", encoding="utf-8")
    assert "is no program of torch.export" in refusal(str(tmp_path / "text.pt2"))
    assert "would have no effect" in refusal(str(program), {"x": (2, 3, 8)})


# ---- texts of no known kind


@pytest.mark.negative
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a model is given as"),
        ("hf:", "a model is given as"),
        ("gpt2", "did you mean 'hf:gpt2'?"),
        ("hff:gpt-2", "did you mean 'hf:gpt-2'?"),
    ],
)
def test_a_text_of_no_known_kind_is_told_the_kinds(text: str, said: str) -> None:
    assert said in refusal(text)


def test_timm_is_read_or_said_to_be_missing() -> None:
    try:
        found = source("timm:vit_tiny_patch16_224")
    except ImportError as error:
        assert "install" in str(error)  # noqa: PT017 - either is right, as the environment is
    else:
        assert isinstance(found.model, nn.Module)


@pytest.mark.parametrize(
    ("config", "least"),
    [
        ({"input_size": (3, 224, 224)}, (3, 224, 224)),
        ({"input_size": (3, 768, 768)}, (3, 224, 224)),
        ({"input_size": (3, 518, 518), "fixed_input_size": True}, (3, 518, 518)),
        ({"input_size": (3, 546, 546), "min_input_size": (3, 126, 126)}, (3, 126, 126)),
    ],
)
def test_an_image_for_timm_is_the_least_that_the_model_takes(config: dict[str, object], least: tuple[int, ...]) -> None:
    model = nn.Identity()
    model.default_cfg = config  # type: ignore[assignment]
    assert _size(model, least=True) == least
    assert _size(model, least=False) == config["input_size"]
