"""Trials an hour: the engine of the race, and the loop that one writes by hand with `nn.TransformerEncoder`.

    python benchmarks/race.py                    # 40 small trials a contestant and round, 2 rounds
    python benchmarks/race.py --depth 18 --trials 12 --rounds 1
    python benchmarks/race.py --skip-ray

All train the same sizes on the same task: copy, 8 tokens of 16 symbols, batch 16, Adam. The loop makes its batches with
`torch.randint` and evaluates once at the end; one runs with PyTorch's default threads, one with one thread. The rounds
go through the contestants in turn, so that a slow minute of the machine hits all of them. Every contestant is a process
of its own; starting Python, importing torch and starting workers or a cluster are counted for all alike.

The last table says where the wall time of the race with all cores goes: in updates, and around them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

WIDTH, HEADS, BATCH, TOKENS, SYMBOLS = 32, 2, 16, 8, 16


def race(options: argparse.Namespace, **limits: Any) -> dict[str, float]:
    """Wall seconds of a race of these trials, seconds in updates, and workers."""
    import normula as nm

    seeds = options.trials // 4
    start = time.perf_counter()
    found = nm.race(
        ("pre", "post"),
        depth=options.depth,
        width=WIDTH,
        heads=HEADS,
        lr=(1e-3, 3e-3),
        batch=BATCH,
        seeds=seeds,
        steps=options.steps,
        task="copy",
        **limits,
    )
    assert len(found.trials) == 4 * seeds
    assert not any(trial.outcome == "failed" for trial in found.trials)
    return {
        "seconds": time.perf_counter() - start,
        "updates": sum(trial.seconds for trial in found.trials),
        "workers": float(limits.get("workers", 2)),
    }


def race_on_a_cluster(options: argparse.Namespace) -> dict[str, float]:
    """A race through Ray on a cluster that runs already; its start and end are not counted in `seconds`."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        return race(options, workers=2, engine="ray")
    finally:
        ray.shutdown()


def loop(options: argparse.Namespace) -> dict[str, float]:
    """Wall seconds of the loop by hand over as many trials."""
    start = time.perf_counter()
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Small(nn.Module):
        def __init__(self, norm_first: bool) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(SYMBOLS, WIDTH), nn.Parameter(0.02 * torch.randn(TOKENS, WIDTH))
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=norm_first)
            final = nn.LayerNorm(WIDTH) if norm_first else None
            self.stack = nn.TransformerEncoder(layer, options.depth, final, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, SYMBOLS)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.stack(self.tokens(ids) + self.positions))

    for seed in range(options.trials // 4):
        for norm_first in (True, False):
            for lr in (1e-3, 3e-3):
                torch.manual_seed(seed)
                model = Small(norm_first)
                optimizer = torch.optim.Adam(model.parameters(), lr=lr)
                losses = []
                for _ in range(options.steps):
                    ids = torch.randint(SYMBOLS, (BATCH, TOKENS))
                    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                model.eval()
                with torch.no_grad():
                    ids = torch.randint(SYMBOLS, (64, TOKENS))
                    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).item()
    return {"seconds": time.perf_counter() - start}


CONTESTANTS: dict[str, tuple[Callable[[argparse.Namespace], dict[str, float]], bool]] = {
    "loop, default threads": (loop, False),
    "loop, one thread": (loop, True),
    "race, one worker": (lambda options: race(options, workers=1), True),
    "race, two workers": (lambda options: race(options, workers=2), True),
    "race in JAX, two workers": (lambda options: race(options, workers=2, framework="flax"), True),
    "race through Ray, two workers": (lambda options: race(options, workers=2, engine="ray"), True),
    "race through a running Ray": (race_on_a_cluster, True),
}
"""For each contestant what it runs, and whether its process has one thread."""


def in_own_process(name: str, options: argparse.Namespace) -> dict[str, float]:
    """What a contestant measured, from a fresh process."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if CONTESTANTS[name][1] else {}
    sizes = [f"--{key}={getattr(options, key)}" for key in ("trials", "depth", "steps")]
    command = [sys.executable, __file__, "--one", name, *sizes]
    begun = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **one}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "wall": time.perf_counter() - begun}


def main() -> None:
    """Run the contestants in turn and print trials an hour, ratios, and where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40, help="of each contestant and round; a multiple of 4")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-ray", action="store_true")
    parser.add_argument("--one", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trials < 4 or options.trials % 4:
        parser.error("--trials is a multiple of 4")
    if options.one:
        print(json.dumps(CONTESTANTS[options.one][0](options)))
        return
    names = [name for name in CONTESTANTS if not (options.skip_ray and "Ray" in name)]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            found[name].append(in_own_process(name, options))
    best = {name: min(rows, key=lambda row: row["wall"]) for name, rows in found.items()}
    hand = min(best[name]["wall"] for name in names if name.startswith("loop"))
    print(
        f"{options.trials} trials of {options.steps} steps, depth {options.depth}; the best of {options.rounds} rounds"
    )
    print(f"{'':30} wall, s  trials/hour  to the better loop")
    for name, row in best.items():
        wall = row["wall"]
        print(f"{name:30} {wall:7.1f}  {3600 * options.trials / wall:11.0f}  {hand / wall:18.2f}")
    one, two = best["race, one worker"], best["race, two workers"]
    print(f"two workers against one: {one['seconds'] / two['seconds']:.2f}")
    for name in (one for one in names if "Ray" in one):
        print(
            f"{name} against the local pool, without the start of Python: {best[name]['seconds'] / two['seconds']:.2f}"
        )
    outside = 1 - two["updates"] / (two["seconds"] * two["workers"])
    print(f"outside training steps, of the race's {two['seconds']:.1f} s on two workers: {outside:.1%}")


if __name__ == "__main__":
    main()
