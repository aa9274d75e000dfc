"""Placements trained against each other: a grid of runs, made side by side, kept in a file, answered with intervals.

Every combination of contestant, depth, width, rate, warmup, batch, optimiser, norm, initial weights and seed is a run.
A race that was interrupted, or killed, goes on with --resume; normula report makes its page.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from normula.cli.options import flat, framework_option, json_option, positive, rates, several, whole
from normula.cli.progress import progress
from normula.race import Grid, Limits, Store, checked, grid_of, outlook, race, unchanged
from normula.race.estimate import duration
from normula.race.grid import VARIED
from normula.race.lane import SETTINGS, top_level
from normula.race.limits import ENGINES, MANY
from normula.race.race import INTERRUPTED
from normula.race.soonest import SOONEST, soonest

LISTS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "depth": ("L", whole(1), "layers; default 6"),
    "width": ("D", whole(1), "of the stream; default 32"),
    "lr": ("RATE", rates, "rates, or low:high:count; default 1e-3"),
    "warmup": ("STEPS", whole(0), "default 0"),
    "batch": ("B", whole(1), "sequences in a batch; default 16"),
    "optimiser": ("NAME", str, "adam, adamw, sgd; default adam"),
    "norm": ("KIND", str, "default layernorm"),
    "init": ("RULE", str, "initial weights: own (the paper's, where it states one), xavier, normal, torch ..."),
}
"""The options that take several values, each with what stands for a value, how it is read, and its help."""

OF_RACE = ("depth", "width", "lr", "warmup", "batch", "optimiser", "norm", "init", "seeds", "allow_unequal")
OF_TRAINING = ("steps", "shape", "beta2", "weight_decay", "clip", "dtype", "task", "data", "context")
OF_MODEL = ("heads", "hidden", "activation", "bias", "dropout", "model", "framework", "device")
FIELDS = (*OF_RACE, *OF_TRAINING, *OF_MODEL)
"""The options that are fields of the grid."""

LIMITS = ("workers", "engine", "address", "minutes", "trials", "max_seconds", "halving")
"""The options that are fields of its limits."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Placements, the grid, the training, the models, the limits, the file."""
    add = parser.add_argument
    add("placements", nargs="*", metavar="NAME_OR_FORMULA", help="such as pre, 'norm(x + f(x))', 'post, final=norm(x)'")
    add("--placement", "--lanes", nargs="+", action="extend", default=[], metavar="NAMES", help="the same, as pre,post")
    grid = parser.add_argument_group("the grid: every combination is run; values stand side by side, or with commas")
    for name, (metavar, read, text) in LISTS.items():
        grid.add_argument(f"--{name}", nargs="+", type=several(read), metavar=metavar, help=text)
    grid.add_argument("--seeds", type=whole(1), metavar="N", help="runs of each combination; default 1")
    grid.add_argument(
        "--allow-unequal",
        action="store_const",
        const=True,
        help="let a contestant have a rate of its own: 'pre, lr=1e-3'",
    )
    _training(parser.add_argument_group("the training"))
    _models(parser.add_argument_group("the models"))
    _making(parser.add_argument_group("how the race is made"))
    out = parser.add_argument_group("where it is kept")
    out.add_argument("--out", metavar="RUN", help="a new file, in which every finished run is kept; default race.db")
    out.add_argument("--resume", metavar="RUN", help="go on with a race, in place of placements and grid")
    out.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="WHERE",
        help="also in tensorboard:FOLDER, wandb:FOLDER, mlflow:FOLDER",
    )
    json_option(parser)


def _training(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--task", metavar="NAME", help="text, copy, repeat, digits, translate, recall, listops, hf:NAME; default text")
    add("--data", nargs="+", metavar="FILE", help="texts, or a folder; default: the sources of Python's library")
    add("--steps", type=whole(1), metavar="N", help="updates of each run; default 150, or twice the longest warmup")
    add("--context", type=whole(1), metavar="T", help="tokens that a model sees at once; default the task's")
    add(
        "--shape",
        metavar="NAME",
        help="of the rate after its warmup: constant, linear, cosine, rsqrt",
    )
    add("--beta2", type=float, metavar="X", help="of Adam; default 0.999")
    add("--weight-decay", type=float, metavar="X", help="of the matrices; default 0")
    add("--clip", type=positive, metavar="X", help="greatest norm of the gradient; default no clipping")
    add("--dtype", metavar="NAME", help="float32, or bfloat16 for the products; default float32")


def _models(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--heads", type=whole(1), metavar="H", help="default 2")
    add("--hidden", type=whole(1), metavar="F", help="width of the MLP; default 4 D")
    add("--activation", metavar="NAME", help="of the MLP; default relu")
    add("--no-bias", dest="bias", action="store_const", const=False, help="no biases")
    add("--dropout", type=float, metavar="X", help="default 0")
    add("--model", metavar="MODULE:FUNCTION", help="a model of your own: a function that takes placement or formula")
    framework_option(group, default=None, also=(SOONEST,), words=f"; {SOONEST}: the faster here, found by timing")
    add("--device", choices=("auto", "cpu", "cuda"), help="default cpu")


def _making(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--workers", type=whole(1), metavar="N", help="runs side by side; default one a core")
    add("--engine", choices=ENGINES, help="default local")
    add("--address", metavar="HOST", help="of the Ray cluster: auto, or HOST:PORT")
    add("--minutes", type=positive, metavar="M", help="stop then, and keep what is half made for --resume")
    add("--trials", type=whole(1), metavar="N", help="the first N runs of the grid, in an order that is fair to all")
    add(
        "--max-seconds",
        type=positive,
        metavar="S",
        help="of updates that a run may take; then it is dropped, and that is said",
    )
    add(
        "--halving",
        action="store_const",
        const=True,
        help="after a quarter and half of the steps each contestant goes on with the better half of its settings",
    )
    add("--yes", action="store_true", help=f"make more than {MANY} runs without being asked")
    add("--dry-run", action="store_true", help="say what would be run and how long that takes, and stop")


def run(options: argparse.Namespace) -> int:
    """Race, print the answer, say where it is kept."""
    if options.resume is not None:
        return _resume(options)
    placements = [lane for text in (*options.placements, *options.placement) for lane in lanes(text)]
    if not placements:
        raise ValueError("a race needs placements, such as: normula race pre post; or go on with one by --resume RUN")
    fields = _given(options, FIELDS)
    grid = grid_of(placements, **fields)
    sure = options.yes or grid.size <= MANY or _is_meant(grid.size)
    if options.dry_run:
        grid, limits = checked(grid, sure=sure), Limits(**_given(options, LIMITS))
        grid = soonest(grid, limits, _say) if options.framework == SOONEST else grid
        return _outlook(grid, limits, (), as_json=options.json)
    out = options.out if options.out is not None else _free_name()
    return _race(options, out, placements=placements, out=out, sure=sure, **_given(options, LIMITS), **fields)


def lanes(text: str) -> list[str]:
    """The contestants of a word: `pre,post` are two, `post, final=x` is one with a setting of its own.

    >>> lanes("pre, post, final=x, init=normal")
    ['pre', 'post, final=x, init=normal']
    """
    found: list[str] = []
    for part in top_level(text):
        if found and re.match(rf"({'|'.join(SETTINGS)})\s*=", part):
            found[-1] += f", {part}"
        else:
            found.append(part)
    return found


def _resume(options: argparse.Namespace) -> int:
    """Go on with a race."""
    limits = _given(options, LIMITS)
    own = ("out", "max_seconds", "halving")
    given = [*_given(options, FIELDS), *_given(options, own)]
    words = [f"--{name.replace('_', '-')}".replace("--bias", "--no-bias") for name in given]
    words += ["the placements"] if options.placements or options.placement else []
    if words:
        raise ValueError(f"--resume takes grid and limits from the file; leave out {', '.join(words)}")
    if options.dry_run:
        with Store.open(options.resume) as store:
            grid = unchanged(store)
            made = {identity for identity, trial in store.finished().items() if trial.outcome != "failed"}
            return _outlook(grid, Limits(**limits, **store.budget), made, as_json=options.json)
    return _race(options, options.resume, resume=options.resume, **limits)


def _race(options: argparse.Namespace, path: str, **arguments: Any) -> int:
    from rich.console import Console

    from normula.record import to_json
    from normula.report.race_terminal import race_terminal

    with progress("racing", tells_time=True) as report:
        found = race(**arguments, log=options.log, report=report, say=_say)
    if options.json:
        print(to_json(found))
    else:
        race_terminal(found, Console())
    made = f"{len(found.trials)} of {found.planned} runs are kept in {path}"
    if found.note:
        _say(f"{found.note}: {made}; go on with: normula race --resume {shlex.quote(path)}")
    else:
        _say(f"{made}; for its page: normula report {shlex.quote(path)}")
    if found.trials and all(trial.outcome == "failed" for trial in found.trials):
        raise ValueError(f"no run could be made; the first: {found.trials[0].note}")
    return 130 if found.note == INTERRUPTED else 0


def _outlook(grid: Grid, limits: Limits, made: Collection[str], *, as_json: bool) -> int:
    """Print what would be run."""
    found = outlook(grid, limits, made=made)
    if as_json:
        seconds = found.seconds if math.isfinite(found.seconds) else None
        print(json.dumps({"grid": grid.to_dict(), "runs": found.runs, "left": found.left, "seconds": seconds}))
        return 0
    print(f"contestants: {'; '.join(lane.name for lane in grid.lanes)}")
    for name in (*VARIED, "seeds", "steps", "task"):
        value = getattr(grid, name)
        print(
            f"{name}: {', '.join(f'{one:g}' if isinstance(one, float) else str(one) for one in value)}"
            if isinstance(value, tuple)
            else f"{name}: {value}"
        )
    print(f"{found.runs} runs, {found.left} to make: about {duration(found.seconds)} on {found.workers} workers")
    return 0


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The options that were given; the others keep their defaults."""
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return {name: _values(name, value) for name, value in given.items()}


def _values(name: str, value: Any) -> Any:
    if name == "init":
        return tuple("torch" if rule == "default" else rule for rule in flat(value))
    if name == "data":
        return value[0] if len(value) == 1 else tuple(value)
    return flat(value) if name in LISTS else value


def _is_meant(size: int) -> bool:
    """Ask whether so large a grid is meant; no, where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError(f"this grid has {size} runs; with --yes they are made, or cut the grid")
    print(f"normula race: this grid has {size} runs; make them all? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    raise ValueError("nothing was run")


def _free_name() -> str:
    """Where a race is kept that was given no file."""
    names = ["race.db", *(f"race-{number}.db" for number in range(2, 1000))]
    return next((name for name in names if not Path(name).exists()), names[-1])


def _say(line: str) -> None:
    print(f"normula race: {line}", file=sys.stderr, flush=True)
