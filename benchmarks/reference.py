"""The reference races, ours beside the losses of an independent implementation.

    python benchmarks/reference.py copy                                 # depth 6, 18, 36; two rates, two warmups
    python benchmarks/reference.py copy --depth 18 --lr 1e-3
    python benchmarks/reference.py copy --own-start                     # from normula's own positions and head
    python benchmarks/reference.py weights                              # depth 18 from three kinds of initial weights
    python benchmarks/reference.py ranking --lr 3e-3 --warmup 0         # eleven schemes at one rate
    python benchmarks/reference.py ranking --out ranking.db             # all, 1 hour of one core; goes on if killed

Seconds of one idle core a run: 1, 3, 7 at depth 6, 18, 36 of the copy race, 30 of the ranking. Losses are means of the
last training losses, one a seed. A cell agrees where the range of ours meets that of the known ones, widened by a
factor of 2, by which two seeds of one cell differ.

The copy race starts positions and head as `nn.Embedding` and `nn.Linear` do, N(0, 1) and U(-1/sqrt(D), 1/sqrt(D)): that
gives the known losses. From normula's own, N(0, 0.02^2) and N(0, 1/D), solved runs end at a third of those at a rate of
1e-3, and a deep Post-LN stack at the edge of trouble sticks less often. Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from normula import build, race
from normula.claims import reference
from normula.cli.progress import progress
from normula.data import Copy
from normula.formula import Placement
from normula.race.words import loss
from normula.record import Race, Trial

SPREAD = 2
"""A factor by which two seeds of one cell differ."""

START = "benchmarks.reference:as_pytorch_starts"

Key = tuple[str, ...]
Table = Mapping[Key, Sequence[float]]


def as_pytorch_starts(placement: Placement, layers: int, width: int, heads: int, init: str, seed: int) -> Any:
    """A model for the copy race, with positions and head as PyTorch's modules start."""
    import torch

    model = build(
        Copy().spec(
            placement=placement, layers=layers, width=width, heads=heads, activation="relu", init=init, seed=seed
        )
    )
    random, bound = torch.Generator().manual_seed(seed), 1 / math.sqrt(width)
    with torch.no_grad():
        model.embed.positions.weight.normal_(generator=random)
        model.head.weight.uniform_(-bound, bound, generator=random)
    return model


def copy(options: argparse.Namespace) -> tuple[dict[str, Any], Table, Callable[[Trial], Key]]:
    """The copy race: its fields, the known losses, and where a run belongs among them."""
    depths = options.depth or sorted({depth for depth, _ in reference.COPY})
    rates = options.lr or sorted({lr for _, lr in reference.COPY})
    known = {
        (f"depth {depth}", f"rate {lr:g}", name, f"warmup {warmup}"): losses
        for (depth, lr), cells in reference.COPY.items()
        for (name, warmup), losses in cells.items()
    }
    fields = {
        "depth": depths,
        "lr": rates,
        "warmup": options.warmup or (0, 75),
        "seeds": options.seeds or 3,
        "model": None if options.own_start else START,
    }
    return (
        _fields(reference.copy_race(**fields)),
        known,
        lambda trial: (
            f"depth {trial.layers}",
            f"rate {trial.lr:g}",
            trial.name,
            f"warmup {trial.warmup}",
        ),
    )


def weights(options: argparse.Namespace) -> tuple[dict[str, Any], Table, Callable[[Trial], Key]]:
    """The copy race at depth 18 from several kinds of initial weights."""
    known = {
        (init, f"rate {lr:g}", name): losses
        for (init, lr), cells in reference.WEIGHTS.items()
        for name, losses in cells.items()
    }
    inits = tuple(dict.fromkeys(init for init, _ in reference.WEIGHTS))
    fields = {
        "depth": 18,
        "lr": options.lr or (1e-3, 5e-3),
        "init": inits,
        "seeds": options.seeds or 3,
        "model": None if options.own_start else START,
    }
    return _fields(reference.copy_race(**fields)), known, lambda trial: (trial.init, f"rate {trial.lr:g}", trial.name)


def ranking(options: argparse.Namespace) -> tuple[dict[str, Any], Table, Callable[[Trial], Key]]:
    """Eleven schemes on the harder task."""
    known = {
        (f"rate {lr:g}", f"warmup {warmup}", name): losses
        for name, cells in reference.RANKING.items()
        for (lr, warmup), losses in cells.items()
    }
    fields = {
        "lr": options.lr or reference.RATES,
        "warmup": options.warmup or reference.WARMUPS,
        "seeds": options.seeds or 2,
    }
    return (
        _fields(reference.ranking(**fields)),
        known,
        lambda trial: (
            f"rate {trial.lr:g}",
            f"warmup {trial.warmup}",
            trial.name,
        ),
    )


TABLES = {"copy": (copy, 10), "weights": (weights, 10), "ranking": (ranking, 20)}
"""The races, and over how many updates at the end their losses are taken."""


def final(trial: Trial, updates: int) -> float:
    """Mean of the last training losses; the chance loss where they are not finite."""
    value = fmean(trial.curve[-updates:]) if trial.curve else math.nan
    return value if math.isfinite(value) else trial.stuck_loss


def lines(found: Race, known: Table, key: Callable[[Trial], Key], updates: int) -> Iterator[str]:
    """The table in Markdown, and how many of its cells agree."""
    cells: dict[Key, list[Trial]] = {}
    for trial in found.trials:
        cells.setdefault(key(trial), []).append(trial)
    yield "| setting | known | ours | |"
    yield "|---|---|---|---|"
    same = compared = 0
    for at, trials in sorted(cells.items()):
        ours, theirs = [final(trial, updates) for trial in trials], known.get(at, ())
        agree = bool(theirs) and min(ours) <= SPREAD * max(theirs) and max(ours) >= min(theirs) / SPREAD
        same, compared = same + agree, compared + bool(theirs)
        word = ("agrees" if agree else "differs") if theirs else ""
        yield f"| {', '.join(at)} | {_losses(theirs)} | {_losses(ours)} | {word} |"
    yield ""
    yield f"{same} of {compared} cells agree within a factor of {SPREAD}."


def _losses(values: Sequence[float]) -> str:
    return " / ".join(map(loss, values))


def _fields(grid: Any) -> dict[str, Any]:
    """A grid as the arguments of a race."""
    return {name: getattr(grid, name) for name in grid.to_dict()}


def main() -> None:
    """Race, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("race", choices=TABLES)
    parser.add_argument("--depth", type=int, nargs="+", help="of the copy race")
    parser.add_argument("--lr", type=float, nargs="+")
    parser.add_argument("--warmup", type=int, nargs="+")
    parser.add_argument("--seeds", type=int)
    parser.add_argument(
        "--own-start", action="store_true", help="positions and head of the copy race as normula has them"
    )
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", help="a file that keeps the runs; where it is there, the race goes on")
    options = parser.parse_args()
    of, updates = TABLES[options.race]
    fields, known, key = of(options)
    where = {"resume": options.out} if options.out and Path(options.out).exists() else {"out": options.out, **fields}
    with progress("racing", tells_time=True) as report:
        found = race(**where, workers=options.workers, report=report)
    for line in lines(found, known, key, updates):
        print(line)


if __name__ == "__main__":
    main()
