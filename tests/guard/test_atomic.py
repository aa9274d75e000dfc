"""A save that is killed at any moment leaves a whole checkpoint: the old one, or the new."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from normula.record.checkpoint import open_checkpoint, write_checkpoint
from normula.record.weights import array_of, stored, write_weights

WRITER = """
import sys
import numpy as np
from normula.record.checkpoint import write_checkpoint
from normula.record.weights import stored
print("ready", flush=True)
for version in range(1, 10**9):
    tensors = {f"t{i}": stored(np.full(20_000, version, np.float32)) for i in range(6)}
    shards = [None, 100_000, 170_000][version % 3] if sys.argv[2] == "shards" else None
    write_checkpoint(sys.argv[1], tensors, {"version": version}, shard_bytes=shards)
"""


@pytest.mark.parametrize("kind", ["file", "shards"])
def test_a_kill_leaves_a_whole_checkpoint(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.safetensors" if kind == "file" else "saved")
    moments = random.Random(0)
    write_checkpoint(path, {f"t{i}": stored(np.zeros(20_000, np.float32)) for i in range(6)}, {"version": 0})
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path), kind], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.08))
            writer.send_signal(signal.SIGKILL)
        found = open_checkpoint(path)
        assert found.about is not None
        assert len(found.entries) == 6
        for name, (_, entry) in found.entries.items():
            assert (array_of(entry, found.bytes_of(name)) == found.about["version"]).all()


@pytest.mark.negative
@pytest.mark.parametrize("shard_bytes", [None, 20])
def test_a_write_that_fails_leaves_nothing_behind(shard_bytes: int | None, tmp_path: Path) -> None:
    good = {name: stored(np.ones(4, np.float32)) for name in "abc"}
    write_checkpoint(tmp_path / "saved", good, {"version": 1}, shard_bytes=shard_bytes)
    before = {one.name: one.read_bytes() for one in (tmp_path / "saved").iterdir()}

    def fail() -> bytes:
        raise OSError("the disk is full")

    bad = {**good, "c": type(good["c"])(dtype="F32", shape=(4,), read=fail)}
    with pytest.raises(OSError, match="disk is full"):
        write_checkpoint(tmp_path / "saved", bad, {"version": 2}, shard_bytes=shard_bytes)
    assert {one.name: one.read_bytes() for one in (tmp_path / "saved").iterdir()} == before


def test_from_shards_to_one_file_and_back_leaves_no_others(tmp_path: Path) -> None:
    tensors = {name: stored(np.ones(4, np.float32)) for name in "abcd"}
    (tmp_path / "saved").mkdir()
    write_weights(tmp_path / "saved" / "of-others.safetensors", {"z": np.ones(2)}, {"formula": "x"})
    for shard_bytes, files in ((20, 4 + 1), (None, 1), (40, 2 + 1), (20, 4 + 1), (None, 1)):
        write_checkpoint(tmp_path / "saved", tensors, {"shards": shard_bytes}, shard_bytes=shard_bytes)
        assert len(list((tmp_path / "saved").iterdir())) == files + 1
        assert open_checkpoint(tmp_path / "saved").about == {"shards": shard_bytes}
