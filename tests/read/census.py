"""What many models do to their residual stream, as a page of the documentation.

python -m tests.read.census [--timm] [--again] [--jobs N] [--minutes N] [--seconds N] [NAME ...]
python -m tests.read.census --page

Of transformers, every type's default config is shrunken to a tiny twin with random weights; of timm, which has no
configs to shrink, one small model of each family is made; each is read and replayed in a process of its own. What was
read is kept beside the page, so that the two libraries may be read in different environments and at different times:
only models without a row are read, unless they are named, or --again says all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.read.sources_report import LIMIT_SECONDS, in_processes
from tests.read.timm_families import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
ROWS, PAGE = DOCS / "models.jsonl", DOCS / "models.md"
PROVED = ("replayed", "replayed on a twin")

HEAD = """# What {count} models do

{transformers} of the {types} model types of transformers {transformers_version} and {timm} families of timm
{timm_version}, read from what runs: `normula read hf:TYPE` and `normula read timm:NAME` say the same of one of them.
Every formula was replayed: with the model's own norms and sublayers, on real tensors and with every gain and bias at
random, it gives the model's own stream. What is not understood, or not replayed, is said to be unknown.

| library | read | whole | in part | unknown | no residual stream | not made or not run |
|---|---|---|---|---|---|---|
{counts}

{commonest}

## Types of transformers

The default config of each type is shrunken: a few layers, narrow, with random weights. `e` and `f` say that a norm
stands on the stream before the first layer and after the last.

{types_table}

## Families of timm

One small model of each family with attention or another mixer in the place of attention, with random weights.

{families_table}

## Not read

{not_read}

The page is made by `python -m tests.read.census`, and with `--timm` in the environment of `./dev zoo`, from
[what was read](models.jsonl).
"""


def one(name: str) -> dict[str, Any]:
    """Read one model, `hf:TYPE` or `timm:NAME`; in this process."""
    from normula.read import read
    from normula.torch.sources import source

    try:
        found = source(name, tiny=True)
        reading = read(found.model, *found.args, **found.kwargs).to_dict()
    except Exception as error:
        return {"name": name, "ran": False, "why": f"{type(error).__name__}: {error}"[:300]}
    return {"name": name, "ran": True, **_row(reading)}


def _row(reading: dict[str, Any]) -> dict[str, Any]:
    """What the page says of a model."""
    stages = [
        {"layers": stage["layers"], "block": stage["block"], "names": stage["names"][:2], "proof": stage["proof"]}
        for stage in reading["stages"]
    ]
    embed, final = (_flags(reading[key], len(stages)) for key in ("embed_norm", "final_norm"))
    return {"stages": stages, "embed": embed, "final": final, "norm": reading["norm"]}


def _flags(value: bool | list[bool], count: int) -> list[bool]:
    return list(value) if isinstance(value, list) else [value] * count


def page(rows: Sequence[dict[str, Any]], types: int) -> str:
    """The page of all rows.

    Raises:
        ValueError: a row says a formula that was not replayed.
    """
    for row in rows:
        for stage in row.get("stages", ()):
            if stage["block"] != "unknown" and stage["proof"] not in PROVED:
                raise ValueError(f"{row['name']} has a formula that was {stage['proof']}: {stage['block']}")
    of = {library: [row for row in rows if row["library"] == library] for library in ("transformers", "timm")}
    read = {library: [row for row in found if row["ran"]] for library, found in of.items()}
    return HEAD.format(
        count=sum(map(len, read.values())),
        types=types,
        transformers=len(read["transformers"]),
        timm=len(read["timm"]),
        transformers_version=_versions(of["transformers"]),
        timm_version=_versions(of["timm"]),
        counts="\n".join(_counts(library, found) for library, found in of.items()),
        commonest=_commonest([row for found in read.values() for row in found]),
        types_table=_table("type", read["transformers"]),
        families_table=_table("model", read["timm"]),
        not_read=_not_read([row for row in rows if not row["ran"]]),
    )


def _versions(rows: Iterable[dict[str, Any]]) -> str:
    return ", ".join(sorted({row["version"] for row in rows}))


def kind(row: dict[str, Any]) -> str:
    """How far a model is understood."""
    if not row["ran"]:
        return "not run"
    known = [stage["block"] != "unknown" for stage in row["stages"]]
    return "none" if not known else "whole" if all(known) else "part" if any(known) else "unknown"


def _counts(library: str, rows: Sequence[dict[str, Any]]) -> str:
    kinds = Counter(map(kind, rows))
    cells = [len(rows) - kinds["not run"], *(kinds[word] for word in ("whole", "part", "unknown", "none", "not run"))]
    return f"| {library} | {' | '.join(map(str, cells))} |"


def _commonest(rows: Sequence[dict[str, Any]]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found = {(stage["block"], ", ".join(stage["names"])) for stage in row["stages"]}
        counts.update(pair for pair in found if pair[0] != "unknown")
    lines = ["| formula of a layer | name | models |", "|---|---|---|"]
    lines += [f"| `{block}` | {called} | {count} |" for (block, called), count in counts.most_common(20)]
    return "\n".join(lines)


def _table(head: str, rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"| {head} | layers | formula | name | around | norm | proof |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        for place, stage in enumerate(row["stages"]):
            known = stage["block"] != "unknown"
            cells = [
                row["name"].partition(":")[2] if place == 0 else "",
                str(stage["layers"]),
                f"`{stage['block']}`" if known else "unknown",
                ", ".join(stage["names"]),
                " ".join(letter for letter, has in (("e", row["embed"]), ("f", row["final"])) if has[place]),
                row["norm"] if place == 0 else "",
                stage["proof"] if known else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        if not row["stages"]:
            lines.append(f"| {row['name'].partition(':')[2]} |  | no residual stream |  |  | {row['norm']} |  |")
    return "\n".join(lines)


def _not_read(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| model | why |", "|---|---|"]
    lines += [f"| {row['name']} | {_plain(row['why'])} |" for row in rows]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A message in a cell of a table."""
    text = text.removeprefix("SourceError: ").removeprefix("Hopeless: ").split("; pass them as")[0]
    return " ".join(text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").split())


def stored() -> dict[str, dict[str, Any]]:
    """The rows beside the page, by name."""
    lines = ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def store(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the rows, in order, and return them."""
    ordered = [rows[name] for name in sorted(rows)]
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in ordered), encoding="utf-8", newline="\n")
    return ordered


def main(words: list[str]) -> int:
    """Read what has no row yet, or what is named, and write rows and page."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser(prog="python -m tests.read.census")
    parser.add_argument("names", nargs="*", help="types of transformers, or models of timm")
    parser.add_argument("--timm", action="store_true", help="read models of timm")
    parser.add_argument("--again", action="store_true", help="also what has a row")
    parser.add_argument("--page", action="store_true", help="read nothing, only write the page")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0, help="of the whole; what is left has no row then")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="of one model")
    options = parser.parse_args(words)
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    library, prefix = ("timm", "timm") if options.timm else ("transformers", "hf")
    every = (
        list(FAMILIES)
        if options.timm
        else random.Random(0).sample(sorted(MODEL_MAPPING_NAMES), len(MODEL_MAPPING_NAMES))
    )
    names = [f"{prefix}:{name}" for name in options.names or every]
    if not options.names and not options.again:
        names = [name for name in names if name not in stored()]
    if not options.page:
        one(f"{prefix}:{'vit_tiny_patch16_224' if options.timm else 'gpt2'}")  # loads what all need, before they part
        end = time.monotonic() + 60 * options.minutes
        for found in in_processes(one, names, options.jobs, options.seconds):
            store({**stored(), found["name"]: {**found, "library": library, "version": version(library)}})
            print(kind(found), found["name"], found.get("why", ""), file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    PAGE.write_text(page(store(stored()), len(MODEL_MAPPING_NAMES)), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
