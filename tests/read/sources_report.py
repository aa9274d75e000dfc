"""Which model types of transformers can be made small and run.

python -m tests.read.sources_report [--alike] [--jobs N] [NAME ...]

With --alike: of which types the tiny twin has modules of the same classes as the whole model, both on meta tensors.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

LIMIT_SECONDS = 60


def one(name: str) -> dict[str, object]:
    """Make one type small, run it, and say how that went; in this process."""
    from normula.torch.sources.hf import config_of
    from normula.torch.sources.trying import forward
    from normula.torch.sources.twin import twin

    started = time.perf_counter()
    try:
        made = twin(config_of(name), {})
        forward(made.model, made.asks)
    except Exception as error:
        return {"name": name, "ran": False, "why": f"{type(error).__name__}: {error}"[:600], "seconds": _since(started)}
    inputs = {key: list(ask.shape) for key, ask in made.asks.items()}
    return {
        "name": name,
        "ran": True,
        "inputs": inputs,
        "parameters": sum(parameter.numel() for parameter in made.model.parameters()),
        "notes": list(made.notes),
        "seconds": _since(started),
    }


def alike(name: str) -> dict[str, object]:
    """Whether a twin has modules of the same classes as its whole model; in this process."""
    from normula.torch.sources.errors import SourceError
    from normula.torch.sources.hf import config_of
    from normula.torch.sources.make import make, plain
    from normula.torch.sources.shrink import scales, shrink

    def classes(config: Any) -> set[str]:
        return {type(module).__name__ for module in make(plain(config), "meta").modules()}

    why = ""
    try:
        config = config_of(name)
        whole = classes(copy.deepcopy(config))
        for scale in scales(config):
            try:
                small = classes(shrink(config, scale))
            except SourceError as error:
                why = str(error)
                continue
            differs = f"only in the whole: {sorted(whole - small)}; only in the twin: {sorted(small - whole)}"
            return {"name": name, "ran": whole == small, "why": differs}
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return {"name": name, "ran": False, "why": f"not made on meta tensors: {why}"[:600]}


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 2)


def in_processes(
    what: Callable[[str], dict[str, object]], names: list[str], jobs: int, seconds: float = LIMIT_SECONDS
) -> Iterator[dict[str, object]]:
    """The same for each name in a process of its own, which is ended after the limit; in order of their ends."""
    context = multiprocessing.get_context("fork")  # the libraries are loaded once
    waiting, running = list(reversed(names)), dict[str, tuple[BaseProcess, Connection, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_send, args=(what, name, there))
            process.start()
            there.close()
            running[name] = (process, here, time.monotonic() + seconds)
        wait([here for _, here, _ in running.values()], timeout=0.5)
        for name, (process, here, end) in list(running.items()):
            found: dict[str, object] | None = None
            if here.poll():
                try:
                    found = here.recv()
                except EOFError:
                    process.join()
                    found = {"name": name, "ran": False, "why": f"its process ended with {process.exitcode}"}
            elif time.monotonic() > end:
                found = {"name": name, "ran": False, "why": f"longer than {seconds:g} s"}
            if found is not None:
                process.kill()
                process.join()
                del running[name]
                yield found


def _send(what: Callable[[str], dict[str, object]], name: str, there: Connection) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    there.send(what(name))


def main(words: list[str]) -> int:
    """Print a line of JSON for each type, then how many ran and why the others did not."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    torch.set_num_threads(1)
    one("gpt2")  # loads what all of them need, before the processes part
    jobs, what = 2, one
    if words[:1] == ["--alike"]:
        what, words = alike, words[1:]
    if words[:1] == ["--jobs"]:
        jobs, words = int(words[1]), words[2:]
    words = words or list(MODEL_MAPPING_NAMES)
    ran, reasons = 0, Counter[str]()
    for found in in_processes(what, words, min(jobs, 2)):
        print(json.dumps(found), flush=True)
        ran += bool(found["ran"])
        if not found["ran"]:
            reasons[str(found["why"])[:120]] += 1
    print(f"\n{ran} of {len(words)} {'built and ran' if what is one else 'alike'} ({100 * ran / len(words):.1f} %)")
    for why, count in reasons.most_common():
        print(f"{count:4d}  {why}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
