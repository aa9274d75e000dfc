"""What a stamp costs: a checkpoint saved and loaded with guard, and with plain safetensors.

    python benchmarks/guard.py [--gigabytes 1] [--repeat 3] [--loads 3] [--folder DIR]

Loads are measured with the file in the page cache, where they are a copy in memory, and from the disk. Each way runs in
a process of its own, with its peak memory; the ways take turns, and the fastest of some is compared.
The model is a stack of pre-norm layers of width 2048, on the CPU; its forward runs on 4 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

SAVES = ("plain save", "guard save")
LOADS = ("plain load", "guard load", "plain load from disk", "guard load from disk")
WIDTH = 2048


def model_of(gigabytes: float) -> nn.Module:
    """Layers of 4 * (3 + 1 + 4 + 4) * width^2 bytes, 201 MB each."""
    layers = max(1, round(gigabytes * 1e9 / (4 * 12 * WIDTH**2)))
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, norm_first=True)
        model = nn.TransformerEncoder(layer, layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    model = model.to_empty(device="cpu").eval()
    with torch.no_grad():
        for one in model.parameters():
            one.uniform_(-0.02, 0.02)
    return model


def measured(way: str, gigabytes: float, folder: Path) -> None:
    """Run one way; print its seconds and the memory that it took beyond the model."""
    from safetensors.torch import load_file, save_file

    from normula import guard

    model, x = model_of(gigabytes), torch.ones(1, 4, WIDTH).cumsum(1).sin()
    small = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 1)
    guard.save(small, folder / "warm.safetensors", (torch.ones(2, 8, 16),))  # what is imported late is imported now
    guard.load(small, folder / "warm.safetensors")
    if way.endswith("from disk"):
        _forget(folder / f"{way.split()[0]}.safetensors")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    match way:
        case "plain save":
            save_file(model.state_dict(), folder / "plain.safetensors")
        case "guard save":
            guard.save(model, folder / "guard.safetensors", (x,))
        case "plain load" | "plain load from disk":
            model.load_state_dict(load_file(folder / "plain.safetensors"))
        case "guard load" | "guard load from disk":
            guard.load(model, folder / "guard.safetensors")
    took = time.perf_counter() - start
    anonymous = _anonymous()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": took, "peak_mb": peak / 1024, "held_mb": anonymous}))


def _forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _anonymous() -> float:
    """Memory of the process that belongs to no file, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Run each way in turn and print the fastest of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--loads", type=int, default=3, help="for each save")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--way", choices=SAVES + LOADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        measured(options.way, options.gigabytes, options.folder)
        return
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for _ in range(options.repeat):
            for way in SAVES + LOADS * options.loads:
                size = str(options.gigabytes)
                words = [sys.executable, __file__, "--way", way, "--folder", folder, "--gigabytes", size]
                done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                if way not in best or done["seconds"] < best[way]["seconds"]:
                    best[way] = done
    for way, one in best.items():
        print(f"{way:20} {one['seconds']:6.2f} s   peak +{one['peak_mb']:7.0f} MB   held {one['held_mb']:7.0f} MB")
    for verb in ("save", "load", "load from disk"):
        ratio = best[f"guard {verb}"]["seconds"] / best[f"plain {verb}"]["seconds"]
        print(f"guard / plain, {verb}: {ratio:.2f}")


if __name__ == "__main__":
    main()
