"""Fuzzing of what reads foreign text: the header of a file, the index of shards, a stamp's inputs, a formula.

    python -m tests.guard.fuzz --minutes 5 [--atheris]

Inputs are good ones with random changes: bytes flipped, cut, repeated, joined with others. Whatever comes, the parser
either gives a value or raises its own error, quickly. Prints executions and findings; exit code 1 for a finding. With
atheris installed, --atheris lets it choose the changes by coverage.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from normula.catalog import placements
from normula.formula import Formula, FormulaError
from normula.guard.inputs import made, written
from normula.record.base import from_dict
from normula.record.stamp import Stamp
from normula.record.tensorfile import WeightsError, parse_header, read_json

SLOW_SECONDS = 5.0

TENSOR = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
HEADERS = [
    json.dumps({"a": TENSOR}).encode(),
    json.dumps({"__metadata__": {"format": "pt"}, "a": TENSOR, "b": {**TENSOR, "data_offsets": [16, 32]}}).encode(),
    json.dumps(
        {'é"\\': {**TENSOR, "dtype": "BF16", "shape": [8]}, "e": {**TENSOR, "shape": [0], "data_offsets": [0, 0]}}
    ).encode(),
    b"{}   ",
]
INPUTS = [json.dumps(written((np.arange(4), np.ones(3)), {"a": np.linspace(0, 1, 2000)}, np.asarray)).encode()]
STAMPS = [json.dumps({"formula": "x", "stages": [], "norms": [], "samples": {"a": [1, 2]}}).encode()]
FORMULAS = [str(one.formula).encode() for one in placements()] + [
    b"gain(0.5, 'channel')*x + attn(e, qk=norm)",
    b"(2*L)**(1/4)*x",
]
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b":",
    b",",
    b"0",
    b"-1",
    b"1e999",
    b"null",
    b"\xff",
    b"\x00",
    b"(",
    b")",
    b"**",
    b"norm",
    b";",
    b"=",
    b"9" * 40,
]


def header(data: bytes) -> None:
    found = parse_header(data, 16, "here")
    at = sorted((one.start, one.end) for one in found.entries.values())
    assert all(a <= b for a, b in at)
    assert all(one[1] <= other[0] for one, other in pairwise(at))
    assert not at or at[-1][1] == 8 + len(data) + 16


def index(data: bytes) -> None:
    read_json(data, "here", 8)


def inputs(data: bytes) -> None:
    made(read_json(data, "here", 32), lambda array: array)


def stamp(data: bytes) -> None:
    try:
        from_dict(Stamp, read_json(data, "here", 32))
    except ValueError:
        raise WeightsError from None


def formula(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = Formula(text)
    assert Formula(str(found)) == found


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "header": (header, HEADERS),
    "index": (index, [b'{"weight_map": {"a": "b.safetensors"}}']),
    "inputs": (inputs, INPUTS),
    "stamp": (stamp, STAMPS),
    "formula": (formula, FORMULAS),
}


def tried(name: str, data: bytes) -> str | None:
    """What is wrong with a parser's answer; None where nothing is."""
    start = time.perf_counter()
    try:
        TARGETS[name][0](data)
    except (WeightsError, FormulaError):
        pass
    except Exception:
        return traceback.format_exc(limit=-3)
    took = time.perf_counter() - start
    return f"took {took:.1f} s" if took > SLOW_SECONDS else None


def mutated(source: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(source.choice(seeds))
    for _ in range(source.choice((1, 1, 2, 3, 8))):
        at = source.randrange(len(data) + 1)
        match source.randrange(6):
            case 0:
                data[at : at + source.randrange(1, 8)] = b""
            case 1:
                data[at:at] = source.choice(PIECES)
            case 2 if at < len(data):
                data[at] = source.randrange(256)
            case 3:
                data[at:at] = source.choice(PIECES) * source.randrange(1, 300)
            case 4:
                other = source.choice(seeds)
                data[at:] = other[source.randrange(len(other) + 1) :]
            case 5:
                end = source.randrange(at, len(data) + 1)
                data[at:at] = data[at:end]
    return bytes(data[:20_000])


def run(minutes: float, seed: int = 0) -> tuple[dict[str, int], list[tuple[str, bytes, str]]]:
    """Executions of each target, and what was found."""
    source, end = random.Random(seed), time.monotonic() + 60 * minutes
    counts, found = dict.fromkeys(TARGETS, 0), list[tuple[str, bytes, str]]()
    while time.monotonic() < end and len(found) < 20:
        for name, (_, seeds) in TARGETS.items():
            data = mutated(source, seeds)
            counts[name] += 1
            if wrong := tried(name, data):
                found.append((name, data, wrong))
    return counts, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    if options.atheris:
        guided(options.minutes)
    counts, found = run(options.minutes, options.seed)
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()), "executions;", len(found), "findings")
    for name, data, wrong in found:
        print(f"\n{name}: {data[:300]!r}\n{wrong}")
    return 1 if found else 0


def guided(minutes: float) -> None:
    """Let atheris choose the inputs; it ends the program, and prints what it found."""
    import atheris  # type: ignore[import-not-found, unused-ignore]

    names = list(TARGETS)

    def one(data: bytes) -> Any:
        if data and (wrong := tried(names[data[0] % len(names)], data[1:])):
            raise AssertionError(wrong)

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={int(60 * minutes)}"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
