"""Files that are hostile, cut or of others: one clear error, nothing pickled, nothing outside the folder."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from normula.record.checkpoint import INDEX, open_checkpoint, write_checkpoint
from normula.record.tensorfile import Header, WeightsError, parse_header, read_header
from normula.record.weights import array_of, read_arrays, read_weights, stored, write_weights

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def raw(header: Any, payload: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(payload)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.negative
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short"),
        (b"\x05", "cut short"),
        (raw({"a": GOOD})[:20], "cut short"),
        (raw({"a": GOOD})[:-1], "ends at byte 8 of 7"),
        ((2**63).to_bytes(8, "little") + bytes(64), "cut short"),
        (raw(b"{" * 200_000), "nests its JSON deeper"),
        (raw(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "nests its JSON deeper"),
        (raw(b'{"a":"' + b'\\"' * 200_000), "does not read"),
        (raw(b'{"a":' + b"9" * 200_000 + b"}"), "does not read"),
        (raw(b"\xff\xfe{}"), "does not read"),
        (raw([1, 2]), "should hold a JSON object, not a list"),
        (raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,NaN]}}'), "which is no JSON"),
        (raw(b'{"a":%s,"a":%s}' % ((json.dumps(GOOD).encode(),) * 2)), "names 'a' twice"),
        (raw({"a": {**GOOD, "shape": [3]}}), "does not take the 8 bytes"),
        (raw({"a": {**GOOD, "shape": [2**40, 2**40]}}), "does not take the 8 bytes"),
        (raw({"a": {**GOOD, "shape": [-2]}}), "whole numbers from 0"),
        (raw({"a": {**GOOD, "shape": [2.0]}}), "whole numbers from 0"),
        (raw({"a": {**GOOD, "shape": [True, 2]}}), "whole numbers from 0"),
        (raw({"a": {**GOOD, "shape": "2"}}), "whole numbers from 0"),
        (raw({"a": {**GOOD, "dtype": "F31"}}), "dtype 'F31'"),
        (raw({"a": {**GOOD, "dtype": None}}), "dtype 'None'"),
        (raw({"a": {**GOOD, "data_offsets": [8, 0]}}), "offsets are wrong"),
        (raw({"a": {**GOOD, "data_offsets": [0, 10**30]}}), "no two whole numbers"),
        (raw({"a": {**GOOD, "data_offsets": [0]}}), "no two whole numbers"),
        (raw({"a": {**GOOD, "more": 1}}), "and nothing else"),
        (raw({"a": "F32"}), "and nothing else"),
        (raw({"a": GOOD, "b": GOOD}), "overlaps another"),
        (raw({"a": {**GOOD, "data_offsets": [8, 16]}}, 16), "leaves a gap"),
        (raw({"a": GOOD}, 16), "8 bytes after its last tensor"),
        (raw({"__metadata__": {"a": 1}, "a": GOOD}), "must be texts by name"),
        (raw({"__metadata__": [], "a": GOOD}), "must be texts by name"),
    ],
)
def test_a_header_that_says_what_cannot_be(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=message) as refusal:
        open_checkpoint(written(tmp_path / "a.safetensors", data))
    assert len(str(refusal.value)) < 600
    assert "\n" not in str(refusal.value)


@pytest.mark.negative
def test_a_header_longer_than_is_allowed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:  # a sparse file: its size is what it says
        file.write((200_000_000).to_bytes(8, "little"))
        file.truncate(300_000_000)
    with pytest.raises(WeightsError, match="100,000,000 are allowed"):
        read_header(path)


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch bomb-went-off",)


@pytest.mark.negative
@pytest.mark.parametrize("name", ["a.safetensors", "a.bin", "a.pt", "a.ckpt"])
def test_a_pickle_is_never_loaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError):
        open_checkpoint(written(tmp_path / name, pickle.dumps(Bomb())))
    assert not (tmp_path / "bomb-went-off").exists()


def test_nothing_here_can_unpickle() -> None:
    import normula.guard
    import normula.record.checkpoint

    for package in (normula.guard, normula.record.checkpoint):
        for source in Path(str(package.__file__)).parent.glob("*.py"):
            text = source.read_text(encoding="utf-8")
            assert "torch.load(" not in text
            assert "allow_pickle=True" not in text
            assert "import pickle" not in text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint in shards."""
    tensors = {f"t{number}": stored(np.full((4, 4), number, np.float32)) for number in range(4)}
    write_checkpoint(tmp_path / "saved", tensors, {"formula": "x + f(x)"}, shard_bytes=130)
    return tmp_path / "saved"


def changed_index(folder: Path, **weight_map: Any) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"].update(weight_map)
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.negative
@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/outside.safetensors",
        "sub/a.safetensors",
        "..",
        ".",
        "",
        "a\\b.safetensors",
        "a\0.safetensors",
        "x.bin",
    ],
)
def test_a_shard_outside_the_folder_is_refused(name: str, folder: Path) -> None:
    save_file({"t9": np.ones(2)}, folder.parent / "outside.safetensors")
    changed_index(folder, t9=name)
    with pytest.raises(WeightsError, match="file beside its index"):
        open_checkpoint(folder)


@pytest.mark.negative
def test_a_shard_that_is_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    save_file({"t9": np.ones(2)}, folder.parent / "outside.safetensors")
    (folder / "in.safetensors").symlink_to(folder.parent / "outside.safetensors")
    changed_index(folder, t9="in.safetensors")
    with pytest.raises(WeightsError, match="a link that leads out of its folder"):
        open_checkpoint(folder)


def test_links_as_the_cache_of_the_hub_has_them_are_followed(folder: Path) -> None:
    blobs, snapshot = folder.parent / "blobs", folder.parent / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, one in enumerate(sorted(folder.iterdir())):
        one.rename(blobs / str(number))
        (snapshot / one.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    assert len(open_checkpoint(snapshot).entries) == 4


@pytest.mark.negative
@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"{", "does not read"),
        (b'{"weight_map": {"t0": 3}}', "must have a weight_map"),
        (b'{"weight_map": []}', "must have a weight_map"),
        (b"{}", "must have a weight_map"),
        (b'{"weight_map": {"t0": "a.safetensors", "t0": "b.safetensors"}}', "twice"),
        (b'{"weight_map": {"t0": "none.safetensors"}}', "no such file"),
        (b'{"a": ' + b"[" * 50_000, "nests"),
    ],
)
def test_an_index_that_is_none(index: bytes, message: str, folder: Path) -> None:
    (folder / INDEX).write_bytes(index)
    with pytest.raises(WeightsError, match=message):
        open_checkpoint(folder)


@pytest.mark.negative
def test_an_index_that_disagrees_with_its_shards(folder: Path) -> None:
    first = json.loads((folder / INDEX).read_text())["weight_map"]["t0"]
    changed_index(folder, t3=first)
    with pytest.raises(WeightsError, match="'t3'"):
        open_checkpoint(folder)
    changed_index(folder, t3=first, nowhere=first)
    with pytest.raises(WeightsError, match=r"'t3'|'nowhere'"):
        open_checkpoint(folder)


@pytest.mark.negative
def test_shards_of_two_checkpoints_are_refused(folder: Path) -> None:
    shard = folder / json.loads((folder / INDEX).read_text())["weight_map"]["t0"]
    tensors = read_arrays(shard)
    write_weights(shard, tensors, {"formula": "norm(x + f(x))"})
    with pytest.raises(WeightsError, match="carry different formulas"):
        open_checkpoint(folder)


@pytest.mark.negative
@pytest.mark.parametrize("about", ["[", "3", '{"formula": 1, "formula": 2}', '{"a":' * 100])
def test_a_stamp_that_does_not_read_is_refused(about: str, tmp_path: Path) -> None:
    save_file({"a": np.ones(2)}, tmp_path / "a.safetensors", {"normula": about})
    with pytest.raises(WeightsError):
        read_weights(tmp_path / "a.safetensors")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int64", "uint16", "bool", "complex64"])
def test_both_ways_with_the_reference_implementation(dtype: str, tmp_path: Path) -> None:
    arrays = {"b": np.arange(12).reshape(3, 4).astype(dtype), "a": np.array(1, dtype), "none": np.zeros((0, 3), dtype)}
    write_weights(tmp_path / "ours.safetensors", arrays, {"formula": "x"})
    for name, one in load_file(tmp_path / "ours.safetensors").items():
        np.testing.assert_array_equal(one, arrays[name])
    save_file(arrays, tmp_path / "theirs.safetensors")
    for name, one in read_arrays(tmp_path / "theirs.safetensors").items():
        np.testing.assert_array_equal(one, arrays[name])
        assert one.dtype == arrays[name].dtype


def test_a_mapped_array_can_be_written_to_and_the_file_stays(tmp_path: Path) -> None:
    write_weights(tmp_path / "a.safetensors", {"a": np.zeros(4, np.float32)}, {"formula": "x"})
    before = (tmp_path / "a.safetensors").read_bytes()
    found = open_checkpoint(tmp_path / "a.safetensors")
    array_of(found.entries["a"][1], found.bytes_of("a"))[:] = 7
    assert (tmp_path / "a.safetensors").read_bytes() == before


def test_an_empty_header_is_a_file_without_tensors() -> None:
    assert parse_header(b"{}", 0, "here") == Header(metadata={}, entries={})
