"""The gradient at the input over depth, many seeds: normula in JAX and in PyTorch, and the loop one writes by hand.

    python benchmarks/flow.py                            # depths 5 to 50, 16 seeds
    python benchmarks/flow.py --depths 5 10 --seeds 4
    python benchmarks/flow.py --compile                  # time to compile against depth: 12, 48, 192 layers

Each contestant runs in a process of its own, with one thread, from a cold start: what is compiled is counted. The loop
by hand builds `nn.TransformerEncoder` for each depth and seed, and takes one gradient at the input. normula's passes
also hold the stream, its branches, the gradient at every step and of every weight, and a second gradient, that of the
skip path alone; they cost more than twice the loop's arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

WIDTH, HEADS, BATCH, TOKENS = 64, 4, 4, 16
CONTESTANTS = ("normula in JAX", "normula in PyTorch", "loop by hand")


def ours(framework: str, depths: Sequence[int], seeds: int) -> list[float]:
    """The time of each depth, in seconds."""
    import normula as nm

    times = []
    for depth in depths:
        start = time.perf_counter()
        spec = nm.Spec(placement="pre", layers=depth, width=WIDTH, heads=HEADS, activation="relu", init="torch")
        nm.flow(spec, seeds=seeds, batch=BATCH, tokens=TOKENS, framework=framework)
        times.append(time.perf_counter() - start)
    return times


def by_hand(depths: Sequence[int], seeds: int) -> list[float]:
    """The time of each depth, in seconds."""
    import torch
    from torch import nn

    times = []
    for depth in depths:
        start = time.perf_counter()
        gradients = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
            model = nn.TransformerEncoder(layer, depth, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
            x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
            out = model(x)
            (gradient,) = torch.autograd.grad((out * torch.randn_like(out)).sum(), x)
            gradients.append(gradient.norm().item())
        times.append(time.perf_counter() - start)
    return times


def compiled(depths: Sequence[int]) -> list[dict[str, float]]:
    """For each depth, seconds to trace and compile a forward and backward pass, in a scan and unrolled up to 48."""
    import jax
    import jax.numpy as jnp

    import normula as nm
    from normula.flax import apply, init, network

    def total(net: Any, unroll: bool, params: Any, x: Any) -> Any:
        return apply(net, params, x, unroll=unroll).sum()

    rows = []
    for depth in depths:
        row: dict[str, float] = {"layers": depth}
        net = network(nm.Spec(placement="pre", layers=depth, width=WIDTH, heads=HEADS))
        params, x = init(net), jnp.zeros((BATCH, TOKENS, WIDTH))
        for name, unroll in (("scan", False), ("unrolled", True)):
            if unroll and depth > 48:
                continue
            start = time.perf_counter()
            loss = partial(total, net, unroll)
            jax.jit(jax.grad(loss)).lower(params, x).compile()
            row[name] = time.perf_counter() - start
        rows.append(row)
    return rows


def in_own_process(name: str, depths: Sequence[int], seeds: int) -> list[float]:
    """A contestant's times, from a fresh process with one thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, __file__, "--one", name, "--seeds", str(seeds), "--depths", *map(str, depths)]
    done = subprocess.run(command, env={**os.environ, **one}, capture_output=True, text=True, check=True)
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    """Run the contestants and print their times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", nargs="+", type=int, default=list(range(5, 51, 5)))
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--compile", action="store_true", help="time to compile against depth instead")
    parser.add_argument("--one", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        print("layers  scan, s  unrolled, s")
        for row in compiled([12, 48, 192]):
            print(f"{row['layers']:6.0f}  {row['scan']:7.2f}  {row.get('unrolled', float('nan')):11.2f}")
        return
    if options.one:
        run = by_hand if options.one == "loop by hand" else ours
        arguments = () if run is by_hand else ("flax" if options.one == "normula in JAX" else "torch",)
        print(json.dumps(run(*arguments, options.depths, options.seeds)))
        return
    found = {name: in_own_process(name, options.depths, options.seeds) for name in CONTESTANTS}
    print(f"{'depth':>5}  " + "  ".join(f"{name:>18}" for name in found))
    for place, depth in enumerate(options.depths):
        print(f"{depth:5}  " + "  ".join(f"{times[place]:16.2f} s" for times in found.values()))
    totals = {name: sum(times) for name, times in found.items()}
    print(f"{'all':>5}  " + "  ".join(f"{total:16.2f} s" for total in totals.values()))
    jax = totals["normula in JAX"]
    print("ratios to normula in JAX: " + ", ".join(f"{name} {total / jax:.2f}" for name, total in totals.items()))


if __name__ == "__main__":
    main()
