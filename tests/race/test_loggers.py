"""Runs in TensorBoard, Weights & Biases and MLflow: read back, they are what was written."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from normula.race.loggers import Logger, loggers, mlflow_uri, series, title
from normula.record import Evaluation, Snapshot, Trial
from tests.race.trials import trial


def logged() -> Trial:
    return trial(
        name="post, final=norm(x)",
        identity="0123456789abcdef",
        curve=(3.0, 2.5, math.nan),
        evaluations=(Evaluation(step=1, loss=2.25, accuracy=0.5),),
        snapshots=(Snapshot(step=0, gradient=0.125, gradients=(1.0,), rms=(1.0, 2.0)),),
        outcome="diverged",
        note="a note",
    )


def test_each_number_of_the_curves_is_written_once() -> None:
    assert [(name, step) for name, step, _ in series(logged())] == [
        ("loss/train", 0),
        ("loss/train", 1),
        ("loss/train", 2),
        ("loss/validation", 1),
        ("accuracy/validation", 1),
        ("gradient/norm", 0),
        ("stream_rms/0", 0),
        ("stream_rms/1", 0),
    ]


def test_tensorboard_reads_curves_and_settings_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    one = logged()
    for _ in range(2):  # a session that was killed may have written it before
        Logger.of(f"tensorboard:{tmp_path / 'new' / 'folder'}").write(one)
    place = tmp_path / "new" / "folder" / title(one)
    assert len(list(place.iterdir())) == 1
    events = EventAccumulator(str(place)).Reload()
    for name, step, value in series(one):
        found = [event.value for event in events.Scalars(name) if event.step == step]
        assert found == [pytest.approx(value, nan_ok=True)]
    begun = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(begun).session_start_info.hparams
    assert settings["name"].string_value == "post, final=norm(x)"
    assert settings["lr"].number_value == 1e-3
    assert (settings["outcome"].string_value, settings["note"].string_value) == ("diverged", "a note")


def test_wandb_keeps_runs_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    write = Logger.of(f"wandb:{tmp_path}").write
    write(logged())
    write(replace(logged(), identity="another"))
    runs = sorted(one.name.split("-")[-1] for one in (tmp_path / "wandb").glob("offline-run-*"))
    assert runs == ["0123456789abcdef", "another"]


def test_mlflow_reads_curves_and_settings_back(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    Logger.of(f"mlflow:{tmp_path / 'runs'}").write(logged())
    client = MlflowClient(tracking_uri=mlflow_uri(tmp_path / "runs"))
    experiment = client.get_experiment_by_name("normula")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert run.data.params["lr"] == "0.001"
    curve = client.get_metric_history(run.info.run_id, "loss/train")
    assert [(one.step, one.value) for one in sorted(curve, key=lambda one: one.step)] == [(0, 3.0), (1, 2.5)]


@pytest.mark.negative
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file cannot be written"):
        Logger.of(f"tensorboard:{tmp_path / 'file'}").write(logged())


@pytest.mark.negative
def test_another_log_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="a log is one of tensorboard:FOLDER, wandb:FOLDER, mlflow:FOLDER, not 'tb:F'"):
        loggers(["tb:F"])
    assert json.dumps(title(trial(name="x + f(norm(x))", identity="id"))) == '"x___f_norm_x__-id"'
