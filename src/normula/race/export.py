"""The runs of a race as tables for other programs: CSV, Parquet, JSON lines.

A run is a row, in the order of the grid. Without what is measured in time or memory, the same runs give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from normula.race.counted import first_loss
from normula.race.outcome import final_training_loss
from normula.record import Trial, to_dict

COLUMNS: Mapping[str, Callable[[Trial], str | int | float]] = {
    "identity": lambda trial: trial.identity,
    "placement": lambda trial: trial.name,
    "init": lambda trial: trial.init,
    "depth": lambda trial: trial.layers,
    "width": lambda trial: trial.width,
    "batch": lambda trial: trial.batch,
    "optimiser": lambda trial: trial.optimiser,
    "norm": lambda trial: trial.norm,
    "lr": lambda trial: trial.lr,
    "warmup": lambda trial: trial.warmup,
    "seed": lambda trial: trial.seed,
    "steps": lambda trial: trial.steps,
    "updates": lambda trial: len(trial.curve),
    "outcome": lambda trial: trial.outcome,
    "loss": lambda trial: trial.loss,
    "accuracy": lambda trial: trial.accuracy,
    "training_loss": lambda trial: final_training_loss(trial.curve),
    "first_loss": first_loss,
    "stuck_loss": lambda trial: trial.stuck_loss,
    "spikes": lambda trial: len(trial.spikes),
    "note": lambda trial: trial.note,
    "seconds": lambda trial: trial.seconds,
    "tokens_per_second": lambda trial: trial.tokens_per_second,
    "memory": lambda trial: trial.memory,
}
"""Each column and its value; `steps` were wanted and `updates` made, losses are in nats, memory in bytes."""

TIMED = ("seconds", "tokens_per_second", "memory")
"""What differs between two runs of the same spec."""


def csv_text(trials: Sequence[Trial], *, time: bool = True) -> str:
    """A line for each run below a line of names; numbers are written so that reading gives the very same.

    Args:
        trials: the runs.
        time: whether what is measured in time or memory is there.
    """
    columns = _columns(time)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([of(trial) for of in columns.values()] for trial in trials)
    return out.getvalue()


def json_lines(trials: Sequence[Trial], *, time: bool = True) -> str:
    """The record of each run, whole, as one line of JSON; see `csv_text`."""
    left_out = () if time else TIMED
    records = [{key: value for key, value in to_dict(one).items() if key not in left_out} for one in trials]
    return "".join(f"{json.dumps(record, allow_nan=False)}\n" for record in records)


def parquet(trials: Sequence[Trial], *, time: bool = True) -> bytes:
    """The columns of the CSV, and each run's curve and held-out losses as lists; see `csv_text`.

    Raises:
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet needs pyarrow; install it with pip install 'normula[race]'") from None
    columns: dict[str, Any] = {
        name: pa.array([of(trial) for trial in trials], type=_arrow(name)) for name, of in _columns(time).items()
    }
    doubles, whole = pa.list_(pa.float64()), pa.list_(pa.int64())
    columns["curve"] = pa.array([trial.curve for trial in trials], type=doubles)
    columns["evaluated"] = pa.array([[one.step for one in trial.evaluations] for trial in trials], type=whole)
    columns["evaluations"] = pa.array([[one.loss for one in trial.evaluations] for trial in trials], type=doubles)
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def _columns(time: bool) -> dict[str, Callable[[Trial], str | int | float]]:
    return {name: of for name, of in COLUMNS.items() if time or name not in TIMED}


_TEXTS = ("identity", "placement", "init", "optimiser", "norm", "outcome", "note")
_WHOLE = ("depth", "width", "batch", "warmup", "seed", "steps", "updates", "spikes", "memory")


def _arrow(name: str) -> Any:
    """The type of a column, the same also where there are no runs."""
    import pyarrow as pa

    return pa.string() if name in _TEXTS else pa.int64() if name in _WHOLE else pa.float64()
