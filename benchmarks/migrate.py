"""A trained model moved to another placement: how much of the loss is recovered, in how many updates, by which way.

    python benchmarks/migrate.py                           # three moves, three seeds; 10 minutes of one core
    python benchmarks/migrate.py post:pre --seeds 1

A model of six layers, width 64, learns to foretell the bytes of a text for 800 updates. Then, all at one rate:

    loaded blindly   the rewired model with the old weights, trained
    path             the formula changes by degrees over half of the updates; a run of its own for each number of them
    distilled        the rewired model learns what the old one says, in every update
    anew             the rewired model, its weights drawn anew, trained
    stayed           the old model, trained on

A cell is the mean loss on held-out text in nats, and in parentheses the share recovered of what loading blindly costs,
(blind at 0 - loss) / (blind at 0 - old). Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from copy import deepcopy
from statistics import fmean, stdev
from typing import Any

import torch

import normula as nm
from normula.data import Task, task
from normula.rewire import migrate
from normula.spec import Recipe
from normula.torch import train
from normula.torch.rewire import distilling, held_out

STEPS = (25, 50, 100, 200, 400)
EXAMPLE = (torch.zeros(1, 8, dtype=torch.long),)

Losses = Mapping[int, float]


def learnt(placement: str, text: Task, layers: int, seed: int) -> Any:
    """A model that was trained, with a warmup and a rate that falls to 0."""
    model = nm.build(text.spec(placement=placement, layers=layers, width=64, heads=4, hidden=256, seed=seed))
    train(model, text, Recipe(steps=800, lr=2e-3, warmup=100, shape="linear", seed=seed))
    return model


def recipe(steps: int, seed: int) -> Recipe:
    """How every contestant is trained; the batches are others than those that the model has seen."""
    return Recipe(steps=steps, lr=1e-3, warmup=10, seed=seed + 1000)


def trained(model: Any, text: Task, seed: int, **options: Any) -> dict[int, float]:
    """The held-out losses of a model on the way through one training."""
    start = held_out(model, text)
    looks = tuple(step - 1 for step in STEPS)
    found = train(model, text, recipe(STEPS[-1], seed), looks=looks, **options)
    return {0: start, **{one.step: one.loss for one in found.evaluations}}


def contestants(old: Any, to: str, text: Task, seed: int) -> Iterator[tuple[str, Losses]]:
    """Each way from one trained model to a placement."""
    blind = nm.rewire(old, to, example=EXAMPLE, accept_inexact=True)
    yield "loaded blindly", trained(deepcopy(blind), text, seed)
    path = {
        steps: migrate(old, to, example=EXAMPLE, task=text, recipe=recipe(steps, seed), kind="path")[1].moved
        for steps in STEPS
    }
    yield "path", {0: held_out(blind, text), **path}
    yield "distilled", trained(blind, text, seed, objective=distilling(old, STEPS[-1]))
    yield "anew", trained(nm.rewire(old, to, example=EXAMPLE, reinit="xavier", seed=seed), text, seed)
    yield "stayed", trained(deepcopy(old), text, seed)


def table(runs: list[dict[str, Losses]]) -> Iterator[str]:
    """A row for each way, a column for each number of updates."""
    yield f"| {'updates':14} |" + "".join(f" {step:>19} |" for step in (0, *STEPS))
    yield "|" + "---|" * (len(STEPS) + 2)
    for way in runs[0]:
        cells = []
        for step in (0, *STEPS):
            losses = [run[way][step] for run in runs]
            shares = [_recovered(run, way, step) for run in runs]
            spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
            cells.append(f" {fmean(losses):.3f}{spread} ({fmean(shares):.2f}) |")
        yield f"| {way:14} |" + "".join(f"{cell:>22}" for cell in cells)


def _recovered(run: Mapping[str, Losses], way: str, step: int) -> float:
    blind, old = run["loaded blindly"][0], run["stayed"][0]
    return (blind - run[way][step]) / (blind - old)


def main() -> None:
    """Print a table for each move."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moves", nargs="*", default=["post:pre", "post:peri", "pre:post"], metavar="FROM:TO")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = task("text")
    models: dict[tuple[str, int], Any] = {}
    for move in options.moves:
        start, _, to = move.partition(":")
        runs = []
        for seed in range(options.seeds):
            if (start, seed) not in models:
                models[start, seed] = learnt(start, text, options.layers, seed)
            runs.append(dict(contestants(models[start, seed], to, text, seed)))
        print(
            f"\n{start} to {to}, {options.layers} layers, {options.seeds} seeds\n", *table(runs), sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
