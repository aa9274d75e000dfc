"""The runs of a race in TensorBoard, Weights & Biases or MLflow: each with its settings and its curves, all offline."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from normula.formula.errors import nearest
from normula.record import Trial

SETTINGS = ("name", "init", "lr", "warmup", "seed", "layers", "width", "batch", "optimiser", "norm", "steps", "outcome")
"""What of a run is written beside its curves."""


@dataclass(frozen=True, slots=True)
class Logger:
    """A place to write runs to.

    Args:
        kind: one of KINDS.
        folder: in which it writes.
    """

    kind: str
    folder: Path

    @classmethod
    def of(cls, text: str) -> Logger:
        """From `tensorboard:FOLDER`, `wandb:FOLDER` or `mlflow:FOLDER`.

        Raises:
            ValueError: another text.
            ImportError: what it needs is not installed; the message names the extra.
        """
        kind, _, folder = text.partition(":")
        if kind not in KINDS or not folder:
            known = ", ".join(f"{name}:FOLDER" for name in KINDS)
            raise ValueError(
                f"a log is one of {known}, not {text!r}{nearest(kind, KINDS) if kind not in KINDS else ''}"
            )
        try:
            import_module(kind)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"{error.name} is not installed; install it with: pip install 'normula[{kind}]'"
            ) from None
        return cls(kind, Path(folder))

    def write(self, trial: Trial) -> None:
        """Write a run that is over.

        Raises:
            ValueError: the folder cannot be written.
        """
        try:
            KINDS[self.kind](trial, self.folder)
        except OSError as error:
            raise ValueError(f"{self.folder} cannot be written ({error.strerror or error})") from None


def title(trial: Trial) -> str:
    """What a run is called: its contestant, and the identity that makes it unique."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in trial.name)
    return f"{plain[:40]}-{trial.identity}"


def series(trial: Trial) -> Iterator[tuple[str, int, float]]:
    """Each number of a run's curves: what it is, after which update, how much."""
    yield from (("loss/train", step, value) for step, value in enumerate(trial.curve))
    for one in trial.evaluations:
        yield "loss/validation", one.step, one.loss
        yield "accuracy/validation", one.step, one.accuracy
    for look in trial.snapshots:
        yield "gradient/norm", look.step, look.gradient
        yield from ((f"stream_rms/{layer}", look.step, value) for layer, value in enumerate(look.rms))


def _settings(trial: Trial) -> Mapping[str, Any]:
    return {name: getattr(trial, name) for name in SETTINGS} | ({"note": trial.note} if trial.note else {})


def _tensorboard(trial: Trial, folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    place = folder / title(trial)
    for old in place.glob("events.out.tfevents.*"):  # of a session that was killed: the same run
        old.unlink()
    writer = EventFileWriter(os.fspath(place))
    writer.add_event(Event(summary=hparams_pb(dict(_settings(trial)), trial_id=trial.identity)))
    for name, step, value in series(trial):
        writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)])))
    writer.close()


def _wandb(trial: Trial, folder: Path) -> None:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    steps: dict[int, dict[str, float]] = {}
    for name, step, value in series(trial):
        steps.setdefault(step, {})[name] = value
    with wandb.init(
        project="normula",
        name=title(trial),
        id=trial.identity,
        dir=os.fspath(folder),
        config=dict(_settings(trial)),
        mode="offline",
        reinit="finish_previous",
        settings=wandb.Settings(silent=True),
    ) as run:
        for step in sorted(steps):
            run.log(steps[step], step=step)


def mlflow_uri(folder: Path) -> str:
    """Where MLflow keeps runs in a folder: its own plain files are no longer maintained, so a database."""
    return f"sqlite:///{(folder / 'mlflow.db').absolute()}"


def _mlflow(trial: Trial, folder: Path) -> None:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=mlflow_uri(folder))
    experiment = client.get_experiment_by_name("normula")
    files = (folder / "artifacts").absolute().as_uri()
    number = client.create_experiment("normula", files) if experiment is None else experiment.experiment_id
    run = client.create_run(number, run_name=title(trial)).info.run_id
    client.log_batch(run, params=[Param(name, str(value)) for name, value in _settings(trial).items()])
    metrics = [Metric(name, value, 0, step) for name, step, value in series(trial) if math.isfinite(value)]
    for first in range(0, len(metrics), MLFLOW_BATCH):
        client.log_batch(run, metrics=metrics[first : first + MLFLOW_BATCH])
    client.set_terminated(run)


MLFLOW_BATCH = 1000
"""Numbers that MLflow takes at once."""

KINDS: Mapping[str, Callable[[Trial, Path], None]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


def loggers(targets: Sequence[str]) -> tuple[Logger, ...]:
    """A logger for each text; see `Logger.of`."""
    return tuple(Logger.of(target) for target in targets)
