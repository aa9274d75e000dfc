"""What is right is never refused: other dtypes, wrappers, shards, buffers, devices, and files that others wrote."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers as hf
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from normula import guard
from tests.guard import models as m


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.fixture
def trained() -> nn.Module:
    return m.randomised(m.Home())


def test_a_model_comes_back_bit_for_bit(trained: nn.Module, tmp_path: Path) -> None:
    stamp = guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    other = m.Home(seed=3)
    found = guard.load(other, tmp_path / "a.safetensors")
    assert found.formula == stamp.formula
    assert (found.allowed, found.notes) == ((), ())
    assert same(trained, other)
    assert guard.inspect(tmp_path / "a.safetensors") == stamp


def test_the_file_is_an_ordinary_one(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    tensors = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(tensors[name], one) for name, one in trained.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("case", ["home", "bloom", "wav2vec2"])
def test_another_dtype_of_the_model_or_of_the_file(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    make, example = {
        "home": (m.Home, (m.IDS,)),
        "bloom": (lambda: m.bloom(True), (m.IDS,)),
        "wav2vec2": (lambda: m.wav2vec2(True), (m.SOUND,)),
    }[case]
    model: Any = m.randomised(make())
    guard.save(model, tmp_path / "a.safetensors", example)
    guard.load(make().to(dtype), tmp_path / "a.safetensors")
    guard.save(model, tmp_path / "b.safetensors", example, dtype=str(dtype).removeprefix("torch."))
    guard.load(make(), tmp_path / "b.safetensors")
    guard.save(model.to(dtype), tmp_path / "c.safetensors", example)
    guard.load(make(), tmp_path / "c.safetensors")


@pytest.mark.negative
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_dtype_hides_no_other_formula(dtype: torch.dtype, tmp_path: Path) -> None:
    guard.save(m.bloom(True), tmp_path / "a.safetensors", (m.IDS,))
    with pytest.raises(guard.WeightsError, match="saved as"):
        guard.load(m.bloom(False).to(dtype), tmp_path / "a.safetensors")


def test_a_compiled_model_either_side(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(torch.compile(trained, backend="eager"), tmp_path / "a.safetensors", (m.IDS,))  # type: ignore[arg-type]
    assert "embed.weight" in load_file(tmp_path / "a.safetensors")
    guard.load(m.Home(), tmp_path / "a.safetensors")
    guard.load(torch.compile(m.Home(), backend="eager"), tmp_path / "a.safetensors")  # type: ignore[arg-type]


def test_compiled_layers_inside_a_model(trained: Any, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    other: Any = m.Home(seed=2)
    other.blocks[1] = torch.compile(other.blocks[1], backend="eager")
    guard.load(other, tmp_path / "a.safetensors")
    guard.save(other, tmp_path / "b.safetensors", (m.IDS,))
    guard.load(m.Home(), tmp_path / "b.safetensors")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_model_wrapped_for_distributed_training(trained: nn.Module, tmp_path: Path, group: None) -> None:
    wrapped = nn.parallel.DistributedDataParallel(trained)
    guard.save(wrapped, tmp_path / "a.safetensors", (m.IDS,))
    guard.load(m.Home(), tmp_path / "a.safetensors")
    guard.load(nn.parallel.DistributedDataParallel(m.Home()), tmp_path / "a.safetensors")
    stamp = guard.inspect(tmp_path / "a.safetensors")
    guard.save(wrapped.state_dict(), tmp_path / "b.safetensors", stamp=stamp)  # names that begin with module.
    guard.load(m.Home(), tmp_path / "b.safetensors")


def test_names_with_a_wrapper_in_a_file_of_others(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        metadata = file.metadata()
    tensors = load_file(tmp_path / "a.safetensors")
    wrapped = {f"module._orig_mod.{name}": one for name, one in tensors.items()}
    save_file(wrapped, tmp_path / "b.safetensors", metadata)
    guard.load(m.Home(), tmp_path / "b.safetensors")


def test_buffers_that_only_one_side_has(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    guard.load(m.Home(buffer=True), tmp_path / "a.safetensors")
    guard.save(m.Home(buffer=True), tmp_path / "b.safetensors", (m.IDS,))
    guard.load(m.Home(), tmp_path / "b.safetensors")


def test_a_model_without_values_gets_them(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    with torch.device("meta"):
        empty = m.Home()
    guard.load(empty, tmp_path / "a.safetensors")
    assert same(trained, empty)


@pytest.mark.negative
def test_a_model_without_values_is_refused_too(tmp_path: Path) -> None:
    guard.save(m.stack(False), tmp_path / "a.safetensors", (torch.ones(2, 5, 16),))
    with torch.device("meta"):
        empty = m.stack(True)
    with pytest.raises(guard.WeightsError, match="saved as"):
        guard.load(empty, tmp_path / "a.safetensors")
    assert all(one.is_meta for one in empty.parameters())


def test_shards_as_transformers_writes_and_reads_them(tmp_path: Path) -> None:
    model = m.randomised(m.bloom(True))
    guard.save(model, tmp_path / "saved", (m.IDS,), shard_bytes=8000)
    index = json.loads((tmp_path / "saved" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    other = m.bloom(True, seed=4)
    guard.load(other, tmp_path / "saved")
    guard.load(other, tmp_path / "saved" / "model.safetensors.index.json")
    assert same(model, other)
    assert same(model, hf.BloomForCausalLM.from_pretrained(tmp_path / "saved"))


def test_what_transformers_saved_with_a_stamp_beside_it(tmp_path: Path) -> None:
    model = m.randomised(m.bloom(True))
    with guard.watching(example=(m.IDS,)):
        model.save_pretrained(tmp_path / "saved")  # type: ignore[operator]
    assert (tmp_path / "saved" / "normula.json").is_file()
    guard.load(m.bloom(True, seed=2), tmp_path / "saved")
    with pytest.raises(guard.WeightsError, match="saved as"):
        guard.load(m.bloom(False), tmp_path / "saved")


@pytest.mark.negative
def test_a_stamp_beside_weights_that_moved_on_is_found_out(tmp_path: Path) -> None:
    model = m.bloom(True)
    with guard.watching(example=(m.IDS,)):
        model.save_pretrained(tmp_path / "saved")
    m.randomised(model).save_pretrained(tmp_path / "saved")  # type: ignore[operator]
    with pytest.raises(guard.WeightsError, match="not what they were when it was saved"):
        guard.load(m.bloom(True), tmp_path / "saved")


def test_tied_tensors_are_written_once(tmp_path: Path) -> None:
    guard.save(m.opt(), tmp_path / "a.safetensors", (m.IDS,))
    names = set(load_file(tmp_path / "a.safetensors"))
    assert len(names & {"lm_head.weight", "model.decoder.embed_tokens.weight"}) == 1
    guard.load(m.opt(seed=1), tmp_path / "a.safetensors")


def test_a_model_of_a_spec_and_the_short_way(tmp_path: Path) -> None:
    import normula as nm
    import normula.torch as in_torch

    spec = nm.Spec(placement="pre", layers=2, width=8, heads=2)
    model = nm.build(spec)
    guard.save(model, tmp_path / "a.safetensors")
    guard.load(nm.build(spec), tmp_path / "a.safetensors")
    in_torch.load(nm.build(spec), tmp_path / "a.safetensors")
    in_torch.save(model, tmp_path / "b.safetensors")
    assert guard.load(nm.build(spec), tmp_path / "b.safetensors").formula == "x + f(norm(x)); final norm(x)"
    with pytest.raises(guard.WeightsError, match="this model is"):
        guard.load(nm.build(nm.Spec(placement="post", layers=2, width=8, heads=2)), tmp_path / "b.safetensors")


def test_inputs_travel_with_the_stamp(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", {"input_ids": m.IDS})
    guard.load(m.Home(), tmp_path / "a.safetensors", (torch.zeros(1, 3, dtype=torch.long),))  # not needed, not used


@pytest.mark.negative
def test_a_file_without_a_stamp_says_what_to_do(tmp_path: Path) -> None:
    save_file(m.Home().state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(guard.WeightsError, match=r"carries no formula\. Find out with normula guard check"):
        guard.load(m.Home(), tmp_path / "a.safetensors")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_another_device(trained: nn.Module, tmp_path: Path) -> None:
    guard.save(trained, tmp_path / "a.safetensors", (m.IDS,))
    guard.load(m.Home(seed=2).cuda(), tmp_path / "a.safetensors")
    guard.save(trained.cuda(), tmp_path / "b.safetensors", (m.IDS.cuda(),))
    guard.load(m.Home(seed=2), tmp_path / "b.safetensors")
    guard.load(m.Home(seed=2).cuda().bfloat16(), tmp_path / "b.safetensors")
