"""What the model types of transformers do to their residual stream, as a page of the documentation.

python -m tests.read.census [--jobs N] [--minutes N] [--out docs/models.md] [NAME ...]

Every type's default config is shrunken to a tiny twin with random weights, read, and replayed. The types are taken in a
shuffled order, so that what a limit of minutes leaves is a fair sample.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.read.sources_report import in_processes

HEAD = """# What {types} models do

{types} of the {all} model types of transformers {version}, read from what runs: `normula read hf:TYPE` says the same of
one of them. Missing are those whose default config makes no small model that runs, and what a limit of time left out. A
row with a known name was replayed: its formula, with the model's own norms and sublayers, on real tensors and with
every gain and bias at random, gives the model's own stream. What is not understood is said to be unknown.

The page is made by `python -m tests.read.census --out docs/models.md`. Of {types} types, {whole} are read whole, {part}
in part, {unknown} not at all, and {none} have no residual stream.

| formula of a layer | name | types |
|---|---|---|
{commonest}

## Type by type

`e` and `f` say that a norm stands on the stream before the first layer and after the last.

| type | layers | formula | name | around | norm |
|---|---|---|---|---|---|
{rows}
"""


def one(name: str) -> dict[str, object]:
    """Read one type; in this process."""
    from normula.read import read
    from normula.torch.sources import source

    try:
        found = source(f"hf:{name}", tiny=True)
    except Exception as error:
        return {"name": name, "ran": False, "why": f"source: {type(error).__name__}: {error}"[:300]}
    try:
        reading = read(found.model, *found.args, **found.kwargs)
    except Exception as error:
        return {"name": name, "ran": False, "why": f"read: {type(error).__name__}: {error}"[:300]}
    return {"name": name, "ran": True, "reading": reading.to_dict()}


def page(readings: Sequence[tuple[str, dict[str, Any]]], version: str, types: int) -> str:
    """The page of all readings, by name."""
    rows: list[str] = []
    formulas: Counter[tuple[str, str]] = Counter()
    kinds: Counter[str] = Counter()
    for name, reading in sorted(readings):
        stages = reading["stages"]
        known = [stage["block"] != "unknown" for stage in stages]
        kinds["none" if not stages else "whole" if all(known) else "part" if any(known) else "unknown"] += 1
        for formula, called in {(stage["block"], ", ".join(stage["names"][:2])) for stage in stages}:
            formulas[formula, called] += formula != "unknown"
        embed, final = (_flags(reading[key], len(stages)) for key in ("embed_norm", "final_norm"))
        for place, stage in enumerate(stages):
            around = " ".join(word for word, has in (("e", embed[place]), ("f", final[place])) if has)
            cells = [
                name if place == 0 else "",
                str(stage["layers"]),
                f"`{stage['block']}`" if known[place] else "unknown",
                ", ".join(stage["names"][:2]),
                around,
                reading["norm"] if place == 0 else "",
            ]
            rows.append(f"| {' | '.join(cells)} |")
        if not stages:
            rows.append(f"| {name} |  | no residual stream |  |  | {reading['norm']} |")
    commonest = [
        f"| `{formula}` | {called} | {count} |" for (formula, called), count in formulas.most_common(20) if count
    ]
    return HEAD.format(
        types=len(readings),
        all=types,
        version=version,
        commonest="\n".join(commonest),
        rows="\n".join(rows),
        **{kind: kinds[kind] for kind in ("whole", "part", "unknown", "none")},
    )


def _flags(value: bool | list[bool], count: int) -> list[bool]:
    return list(value) if isinstance(value, list) else [value] * count


def main(words: list[str]) -> int:
    """Read all types, or those named, and write the page."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    jobs, minutes, out, names = 2, 600.0, None, []
    rest = iter(words)
    for word in rest:
        if word == "--jobs":
            jobs = int(next(rest))
        elif word == "--minutes":
            minutes = float(next(rest))
        elif word == "--out":
            out = Path(next(rest))
        else:
            names.append(word)
    found: list[tuple[str, dict[str, Any]]] = []
    failed: list[dict[str, object]] = []
    names = names or random.Random(0).sample(sorted(MODEL_MAPPING_NAMES), len(MODEL_MAPPING_NAMES))
    end = time.monotonic() + 60 * minutes
    for done in in_processes(one, names, jobs):
        if done["ran"]:
            found.append((str(done["name"]), dict(done["reading"])))  # type: ignore[call-overload]
        else:
            failed.append(done)
        print(json.dumps(done), flush=True)
        if time.monotonic() > end:
            break
    text = page(found, transformers.__version__, len(MODEL_MAPPING_NAMES))
    if out is not None:
        out.write_text(text, encoding="utf-8", newline="\n")
    print(f"{len(found)} read, {len(failed)} not", file=sys.stderr)
    for one_failed in failed:
        print(f"  {one_failed['name']}: {one_failed['why']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
