"""Forward and backward of a 12-layer stack on the CPU: normula, its peers, and the bare matrix products.

    python benchmarks/speed.py                      # widths 64, 256, 512; one thread and two
    python benchmarks/speed.py --width 64 --threads 1 --rounds 15

All contestants run in one process, interleaved, so that a slow moment of the machine hits all of them alike. The table
shows medians, and each contestant's speed as a share of that of the bare products: the matrix products of the same
stack, forward and backward, with nothing between them. Peers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import normula as nm

LAYERS, BATCH, TOKENS = 12, 4, 128
Step = Callable[[], object]


def heads(width: int) -> int:
    """Heads of width 32, as far as they go."""
    return max(1, width // 32)


def trained(model: nn.Module, x: Tensor, run: Callable[[Tensor], Tensor] | None = None) -> Step:
    """A forward and a backward pass, with respect to the input and every parameter."""
    model.train()

    def step() -> None:
        x.grad = None
        model.zero_grad(set_to_none=True)
        out = (run or model)(x)
        out.backward(torch.ones_like(out))

    return step


def ours(width: int, x: Tensor) -> Step:
    """normula's Pre-LN stack with its final norm."""
    return trained(
        nm.build(nm.Spec(placement="pre", layers=LAYERS, width=width, heads=heads(width), activation="relu")), x
    )


def plain(width: int, x: Tensor) -> Step:
    """The block that one writes by hand, with torch.nn modules."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            B, T, D = x.shape
            q, k, v = self.qkv(self.n1(x)).view(B, T, 3, heads(width), -1).permute(2, 0, 3, 1, 4)
            h = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D)
            x = x + self.o(h)
            return x + self.down(torch.relu(self.up(self.n2(x))))

    return trained(nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(width)), x)


def encoder(width: int, x: Tensor) -> Step:
    """torch.nn.TransformerEncoder, norm_first."""
    layer = nn.TransformerEncoderLayer(width, heads(width), 4 * width, 0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(width), enable_nested_tensor=False)
    return trained(model, x)


def x_transformers(width: int, x: Tensor) -> Step:
    """x-transformers' Encoder, as near to the same block as its options come."""
    from x_transformers import Encoder

    model = Encoder(dim=width, depth=LAYERS, heads=heads(width), attn_dim_head=32, attn_flash=True, ff_mult=4)
    return trained(model, x)


def transformers(width: int, x: Tensor) -> Step:
    """transformers' GPT-2, bidirectional in cost: its causal mask makes attention cheaper, not dearer."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=8,
        n_positions=TOKENS,
        n_embd=width,
        n_layer=LAYERS,
        n_head=heads(width),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        activation_function="relu",
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return trained(model := GPT2Model(config), x, lambda x: model(inputs_embeds=x).last_hidden_state)


def products(width: int, x: Tensor) -> Step:
    """The matrix products of the stack alone: three for each matrix, six for each attention."""
    N, D, H = BATCH * TOKENS, width, heads(width)
    shapes = [(N, D, D)] * 4 + [(N, D, 4 * D), (N, 4 * D, D)]
    trios = [(torch.randn(n, i), torch.randn(i, o), torch.randn(n, o)) for n, i, o in shapes]
    outs = [(torch.empty(n, o), torch.empty(n, i), torch.empty(i, o)) for n, i, o in shapes]
    q, s = torch.randn(BATCH * H, TOKENS, D // H), torch.randn(BATCH * H, TOKENS, TOKENS)
    mixed, scores = torch.empty_like(q), torch.empty_like(s)

    def step() -> None:
        for _ in range(LAYERS):
            for (a, w, g), (y, da, dw) in zip(trios, outs, strict=True):
                torch.mm(a, w, out=y)
                torch.mm(g, w.t(), out=da)
                torch.mm(a.t(), g, out=dw)
            for _ in range(2):
                torch.bmm(q, q.transpose(1, 2), out=scores)
                torch.bmm(s, q, out=mixed)
            torch.bmm(s.transpose(1, 2), q, out=mixed)
            torch.bmm(s.transpose(1, 2), q, out=mixed)

    return step


CONTESTANTS = {
    "products": products,
    "normula": ours,
    "plain block": plain,
    "nn.TransformerEncoder": encoder,
    "x-transformers": x_transformers,
    "transformers GPT-2": transformers,
}


def timed(width: int, rounds: int) -> dict[str, float | str]:
    """Median seconds of each contestant, interleaved; a text where one is not installed."""
    torch.manual_seed(0)
    steps: dict[str, Step] = {}
    result: dict[str, float | str] = {}
    for name, make in CONTESTANTS.items():
        x = torch.randn(BATCH, TOKENS, width, requires_grad=True)
        try:
            steps[name] = make(width, x)
        except ImportError as error:
            result[name] = f"not installed ({error.name})"
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for name in steps:
        steps[name]()
    gc.disable()
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
        gc.collect()
    return result | {name: statistics.median(values) for name, values in seconds.items()}


def peak(name: str, width: int) -> float:
    """Peak memory of a process that runs one contestant, above that of one that runs none, in MiB."""
    code = f"import speed; print(speed.alone({name!r}, {width}))"
    folder = __file__.rsplit("/", 1)[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True)
    return float(done.stdout)


def alone(name: str, width: int) -> float:
    """Peak memory of a few steps of a contestant above what it holds at rest, in MiB; in a fresh process, on Linux."""
    torch.set_num_threads(1)
    step = CONTESTANTS[name](width, torch.randn(BATCH, TOKENS, width, requires_grad=True))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew, whatever building took
    before = held("VmRSS")
    for _ in range(3):
        step()
    return held("VmHWM") - before


def held(what: str) -> float:
    """Memory of this process now (VmRSS) or at most (VmHWM), in MiB; getrusage counts what the parent held too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", nargs="+", type=int, default=[64, 256, 512])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory", action="store_true", help="measure peak memory too, each in a process of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for width in options.width:
            found = timed(width, options.rounds)
            base = found["products"]
            for name, value in found.items():
                row = {"threads": threads, "width": width, "name": name}
                if isinstance(value, str):
                    row["note"] = value
                else:
                    row |= {"ms": 1000 * value, "share": base / value}
                    if options.memory and threads == options.threads[0] and name != "products":
                        row["peak_mib"] = peak(name, width)
                rows.append(row)
                if not options.json:
                    tail = row.get("note") or f"{row['ms']:9.1f} ms   {row['share']:.2f} of the products' speed"
                    memory = f"   {row['peak_mib']:.0f} MiB" if "peak_mib" in row else ""
                    print(f"{threads} thread(s)  width {width:4}  {name:22} {tail}{memory}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
