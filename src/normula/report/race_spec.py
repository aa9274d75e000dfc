"""How a race was made: its grid in words, and the command that makes it again."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any, Final

from normula.race.grid import Grid
from normula.race.lane import Lane
from normula.record import Race
from normula.report.measured import made_rows, value_words
from normula.report.words import capital

LABELS: Final = {
    "depth": "depths, in layers",
    "width": "widths D",
    "lr": "learning rates",
    "warmup": "warmups, in steps",
    "batch": "sequences in a batch",
    "optimiser": "optimisers",
    "norm": "kinds of norm",
    "init": "initial weights",
    "seeds": "seeds, each with its own weights and order of the data",
    "steps": "updates of each run",
    "shape": "rate after the warmup",
    "beta1": "Adam's beta 1",
    "beta2": "Adam's beta 2",
    "weight_decay": "weight decay",
    "clip": "greatest norm of the gradient",
    "dtype": "products computed in",
    "context": "tokens in a sequence",
    "heads": "heads",
    "hidden": "hidden units of the MLP",
    "activation": "activation of the MLP",
    "bias": "biases",
    "dropout": "dropout",
    "model": "model",
    "framework": "framework",
    "device": "device",
}
"""The fields of a grid, in the order in which they are shown."""

_BARE: Final = {"bias": "--no-bias", "allow_unequal": "--allow-unequal"}
"""Fields that are given by an option without a value, where they are not as usual."""

_UNSAID: Final = ("beta1",)
"""Fields that have no option."""


def spec_rows(race: Race) -> list[tuple[str, str]]:
    """The grid, the data and where it ran, as pairs of a label and a value."""
    unset = {"clip": "no clipping", "context": "the task's own", "hidden": "4 D", "model": "normula's own"}
    grid = race.grid
    rows = [
        (LABELS[name], unset.get(name, "none") if grid[name] is None else _words(name, grid[name]))
        for name in LABELS
        if name in grid
    ]
    rows += [(f"budget: {name.replace('_', ' ')}", str(value)) for name, value in race.budget.items()]
    return [*rows, *made_rows(race)]


def race_command(race: Race) -> str | None:
    """What to type to make the race again; None where it has what can be said in Python only."""
    names = [_typed(one) for one in race.grid["placements"]]
    usual = {one.name: one.default for one in fields(Grid)}
    if None in names or any(not _same(race.grid.get(name, usual[name]), usual[name]) for name in _UNSAID):
        return None
    words = ["normula", "race", *(name for name in names if name)]
    for name, value in race.grid.items():
        if name == "placements" or value is None or _same(value, usual[name]):
            continue
        if name in _BARE:
            words.append(_BARE[name])
        else:
            words += [
                f"--{name.replace('_', '-')}",
                *(repr(v) if isinstance(v, float) else str(v) for v in _all(value)),
            ]
    for name, value in race.budget.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _typed(lane: dict[str, Any]) -> str | None:
    """A lane's text, where reading it gives this very lane; of a formula given by another name, the formula's."""
    own = [f"{key}={lane[key]}" for key in ("final", "embed", "init", "lr") if lane.get(key) is not None]
    for text in (lane["name"], ", ".join([str(lane["placement"].get("formula")), *own])):
        try:
            found = Lane.of(text)
        except ValueError:
            continue
        same = all(getattr(found, key) == lane.get(key) for key in ("final", "embed", "init", "lr"))
        if same and _nameless(found.placement.to_dict()) == _nameless(lane["placement"]):
            return str(text)
    return None


def _nameless(placed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in placed.items() if key != "name"}


def _words(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    words = value_words(name, value)
    return capital(words) if name == "init" else words


def _same(value: Any, usual: Any) -> bool:
    return _all(value) == _all(usual)


def _all(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
