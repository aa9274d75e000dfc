"""Rewire every line of the table of models to every placement: python -m tests.rewire.zoo_report [FILE or ID ...].

A line counts if its reading is exact. For each placement that needs one stream: how many lines reach it, each proved by
reading the new model; how many have other sublayers than a formula of a whole layer has; and what stops the rest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.read.compare import compare
from tests.read.fixtures import FILES, built, lines

Outcome = tuple[str, str, str]
"""The placement, what came of it (`proved`, `does not apply`, `refused`, `slow`, `crash`), and why."""


def one_stream() -> list[str]:
    """The placements of the catalogue that need one stream and no count of training steps."""
    from normula.catalog import placements

    return [
        one.name
        for one in placements()
        if not one.streams and not one.operator and not any("step" in formula.symbols for formula in one.formulas)
    ]


def report(entry: dict[str, Any], names: Sequence[str], seconds: int) -> tuple[str, str, list[Outcome]]:
    """File, id, and an outcome for each placement; none where the line's reading is not exact."""
    import torch

    from normula.read import read
    from normula.rewire.errors import RewireError
    from normula.rewire.understood import understood

    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(seconds)
    try:
        model, args, kwargs = built(entry)
        if compare(entry, read(model, *args, **kwargs).to_dict()).verdict != "right":
            return entry["file"], entry["id"], []
        there = understood(model, args, kwargs)
    except ModuleNotFoundError:
        return entry["file"], entry["id"], []
    except RewireError as error:
        return entry["file"], entry["id"], [(name, "refused", str(error)) for name in names]
    except Exception as error:
        return entry["file"], entry["id"], [(name, "crash", repr(error)[:300]) for name in names]
    finally:
        signal.alarm(0)
    return entry["file"], entry["id"], [(name, *_outcome(there, name, seconds)) for name in names]


def _outcome(there: Any, name: str, seconds: int) -> tuple[str, str]:
    from normula.catalog import placement
    from normula.rewire.errors import RewireError, UnfitError
    from normula.rewire.plan import planned
    from normula.rewire.rewire import rewired

    signal.alarm(seconds)
    try:
        rewired(there, planned(there, placement(name)), accept_inexact=True)
    except UnfitError as error:
        return "does not apply", str(error)
    except RewireError as error:
        return "refused", str(error)
    except TimeoutError:
        return "slow", f"more than {seconds} seconds"
    except Exception as error:
        return "crash", repr(error)[:300]
    finally:
        signal.alarm(0)
    return "proved", ""


def _too_long(*_: object) -> None:
    raise TimeoutError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", help="names of files or of lines")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--to", nargs="+", default=None, help="placements; default all that need one stream")
    parser.add_argument("--every", type=int, default=1, help="only every so manieth line")
    options = parser.parse_args(arguments)
    files = [name for name in options.what if name in FILES]
    wanted = {name for name in options.what if name not in FILES}
    names = options.to or one_stream()
    entries = [entry for entry in lines(*files) if not wanted or entry["id"] in wanted][:: options.every]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    exact = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=8) as pool:
        for job in [pool.apply_async(report, (entry, names, options.seconds)) for entry in entries]:
            _, identity, outcomes = job.get()
            exact += bool(outcomes)
            for name, outcome, why in outcomes:
                counts[name][outcome] += 1
                if outcome not in ("proved", "does not apply"):
                    print(f"{outcome:8} {identity} to {name}: {why[:400]}", flush=True)
    print(f"{exact} lines with an exact reading")
    whole: Counter[str] = Counter()
    for name in names:
        whole += counts[name]
        print(f"{name:24}", _line(counts[name]))
    print(f"{'all':24}", _line(whole))
    return int(bool(whole["crash"]))


def _line(count: Counter[str]) -> str:
    applies = sum(n for outcome, n in count.items() if outcome != "does not apply")
    said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(count.items()))
    return f"{100 * count['proved'] / max(applies, 1):5.1f} % of those it applies to   ({said})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
