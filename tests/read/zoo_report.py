"""Read every line of the table: python -m tests.read.zoo_report [FILE] [ID ...] [--seconds N]."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.read.compare import compare
from tests.read.fixtures import FILES, built, lines

PROCESSES = 2


def report(entry: dict[str, Any], seconds: int) -> tuple[str, str, str, list[str], float]:
    """File, id, verdict, notes and seconds of one line."""
    began = time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(seconds)
    try:
        from normula.read import read

        model, args, kwargs = built(entry)
        began = time.perf_counter()
        came = compare(entry, read(model, *args, **kwargs).to_dict())
        verdict, notes = str(came.verdict), came.notes
    except ModuleNotFoundError as error:
        verdict, notes = "skipped", [str(error)]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict, notes = "crash", [f"{error!r} at {where.filename}:{where.lineno}"[:400]]
    finally:
        signal.alarm(0)
    return entry["file"], entry["id"], verdict, notes, time.perf_counter() - began


def _too_long(*_: object) -> None:
    raise TimeoutError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", help="names of files or of lines")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args(arguments)
    files = [name for name in options.what if name in FILES]
    wanted = {name for name in options.what if name not in FILES}
    entries = [entry for entry in lines(*files) if not wanted or entry["id"] in wanted]
    counts: dict[str, Counter[str]] = {name: Counter() for name in FILES}
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        jobs = [pool.apply_async(report, (entry, options.seconds)) for entry in entries]
        for job in jobs:
            name, identity, verdict, notes, seconds = job.get(timeout=600)
            counts[name][verdict] += 1
            if wanted or (notes and verdict != "skipped"):
                print(f"{verdict:8} {identity}  ({seconds:.1f} s)")
                for note in notes:
                    print(f"         {note}")
    for name in FILES:
        print(f"{name:14}", ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts[name].items())))
    return int(any(count["wrong"] or count["crash"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
