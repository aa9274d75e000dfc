"""How a comparison was measured: its settings in words, and the command that repeats it."""

from __future__ import annotations

import math
import shlex
from typing import Any, Final

from normula.catalog import placement
from normula.record import Comparison, Contestant, Race
from normula.report.words import init_words, nats

LABELS: Final = {
    "layers": "layers of the models that race",
    "width": "width D",
    "heads": "heads",
    "norm": "kind of norm",
    "activation": "activation of the MLP",
    "steps": "updates of each run",
    "batch": "sequences in a batch",
    "context": "tokens in a sequence",
    "lr": "learning rates",
    "warmup": "warmups, in steps",
    "init": "initial weights",
    "seeds": "seeds, each with its own weights and order of the data",
    "depths": "depths at initialisation",
    "flow_width": "width D at initialisation",
    "probe": "probe at initialisation",
    "flow_steps": "training steps over which the flow is measured",
}
"""The settings that decide results, in the order of the command's help."""


def settings_rows(comparison: Comparison) -> list[tuple[str, str]]:
    """What was asked for, what it was trained on and where it ran, as pairs of a label and a value."""
    settings = comparison.settings
    return [
        *((LABELS[name], value_words(name, settings[name])) for name in LABELS if name in settings),
        *made_rows(comparison),
    ]


def made_rows(record: Comparison | Race) -> list[tuple[str, str]]:
    """Data, versions, machine and time of what was trained."""
    data, where = record.data, record.environment
    rows = [("data", f"{data.get('name', 'not recorded')}, SHA-256 {data.get('digest', 'not recorded')}…")]
    stuck = data.get("stuck_loss")
    if isinstance(stuck, int | float) and math.isfinite(stuck):
        rows.append(
            (f"loss of the {'byte ' if isinstance(record, Comparison) else ''}frequencies alone", f"{nats(stuck)} nats")
        )
    rows.append(("versions", ", ".join([f"Python {where.python}", *(f"{k} {v}" for k, v in where.versions.items())])))
    rows.append(("machine", f"{where.machine}, {where.device}"))
    rows.append(("runs", f"{len(record.trials)} of {record.planned} finished"))
    training = sum(trial.seconds for trial in record.trials)
    rows.append(("time", f"{record.seconds:.0f} s in all; {training:.0f} s of training, summed over the runs"))
    rows.append(("record", f"schema {record.schema}"))
    return rows


def command(comparison: Comparison) -> str | None:
    """What to type to make the comparison again; None where a placement cannot be typed, having been made in Python."""
    names = [_typed(one) for one in comparison.contestants]
    if not all(names):
        return None
    words = ["normula", "compare", *(name for name in names if name)]
    for name in (*LABELS, "data"):
        value = comparison.settings.get(name)
        if value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{name.replace('_', '-')}", *(typed(part) for part in values)]
    return shlex.join(words)


def _typed(contestant: Contestant) -> str | None:
    """A catalogue's name, or a formula's text, that gives this very placement."""
    for text in (contestant.name, str(contestant.placement.get("formula"))):
        try:
            found = placement(text).to_dict()
        except ValueError:
            continue
        if _without_name(found) == _without_name(contestant.placement):
            return text
    return None


def _without_name(placed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in placed.items() if key != "name"}


def value_words(name: str, value: Any) -> str:
    """A setting's value or values."""
    if isinstance(value, list | tuple):
        return ", ".join(value_words(name, part) for part in value)
    return init_words(str(value)) if name == "init" else typed(value)


def typed(value: Any) -> str:
    """As it is typed: short, and read again as the same where it has six digits or fewer."""
    return f"{value:g}" if isinstance(value, float) else str(value)
