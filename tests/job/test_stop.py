"""The measure by which a job is judged: its name, its direction, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from vcdl.errors import JobError
from vcdl.job import Job
from vcdl.job.data import DataSettings
from vcdl.job.stop import StopSettings, direction, measured_names
from vcdl.job.training import TrainingSettings
from vcdl.journal.monitor import Monitor
from vcdl.wire.task import Task
from vcdl.yaml_schema.section import read_section

CLASSES: Task = "classification"
NUMBERS: Task = "regression"


def training(*metrics: str, loss: str = "mean_squared_error") -> TrainingSettings:
    return read_section(TrainingSettings, {"metrics": list(metrics), "loss": loss})


def data(task: Task) -> DataSettings:
    return DataSettings(npz=Path("data.npz"), task=task)


@pytest.mark.parametrize(
    ("stop", "task", "settings", "monitor"),
    [
        ({}, CLASSES, training("auc"), Monitor("accuracy", "max")),
        ({}, NUMBERS, training("mae"), Monitor("loss", "min")),
        ({}, NUMBERS, training("accuracy"), Monitor("loss", "min")),
        ({}, NUMBERS, training(loss="poisson"), Monitor("loss", "min", is_signed=True)),
        ({"monitor": "val_loss"}, CLASSES, training(), Monitor("loss", "min")),
        ({"monitor": "loss"}, CLASSES, training(), Monitor("loss", "min")),
        ({"monitor": "val_mae"}, NUMBERS, training("mae"), Monitor("mean_absolute_error", "min")),
        ({"monitor": "AUC"}, CLASSES, training("auc"), Monitor("auc", "max")),
        ({"monitor": "auc_2"}, CLASSES, training("auc"), None),
        ({"monitor": "r2_score", "mode": "min"}, NUMBERS, training("r2_score"),
         Monitor("r2_score", "min", is_signed=True)),
    ],
)  # fmt: skip
def test_the_monitor_is_accuracy_or_the_loss_unless_the_job_names_one(
    stop: dict[str, Any], task: Task, settings: TrainingSettings, monitor: Monitor | None
) -> None:
    read = read_section(StopSettings, stop)
    assert [problem.message for problem in read.problems(data(task), settings)] == [] or monitor is None
    assert monitor is None or read.monitor_for(data(task), settings) == monitor


@pytest.mark.parametrize(
    ("stop", "task", "settings", "at", "words"),
    [
        ({"monitor": "auk"}, CLASSES, training("auc"), "monitor", "add it to training > metrics; did you mean auc?"),
        ({"target": 0.9, "target_accuracy": 0.9}, CLASSES, training(), "target", "remove one of the two"),
        ({"monitor": "auc", "target_accuracy": 0.9}, CLASSES, training("auc"), "target_accuracy", "use target"),
        ({"target_accuracy": 0.9}, NUMBERS, training(), "target_accuracy", "regression has no accuracy"),
        ({"monitor": "r2_score", "target": 80}, NUMBERS, training("r2_score"), "target", "80 is never reached"),
    ],
)
def test_what_cannot_judge_or_end_the_job_is_refused(
    stop: dict[str, Any], task: Task, settings: TrainingSettings, at: str, words: str
) -> None:
    (problem,) = read_section(StopSettings, stop).problems(data(task), settings)
    assert (problem.at, words in problem.message) == ((at,), True)


def test_a_name_that_says_nothing_needs_a_mode() -> None:
    assert direction("some_metric") is None
    assert direction("accuracy_error") is None, "it says both"


@pytest.mark.keras
def test_every_metric_of_keras_says_by_its_name_which_way_is_better_and_as_keras_does() -> None:
    import keras

    from vcdl.client.metrics import snake_case

    found = {
        snake_case(name).replace("io_u", "iou"): metric
        for name, metric in vars(keras.metrics).items()
        if isinstance(metric, type) and issubclass(metric, keras.metrics.Metric)
    }
    for name in ("metric", "mean", "sum", "mean_metric_wrapper"):
        del found[name]
    assert {name for name in found if direction(name) is None} == set()
    made = {name: made() for name, made in found.items() if "_at_" not in name and "iou" not in name}
    told = {name: getattr(metric, "_direction", None) for name, metric in made.items()}
    assert all(direction(name) == {"up": "max", "down": "min"}[word] for name, word in told.items() if word)
    assert sum(word is not None for word in told.values()) > 20


def test_a_job_file_names_its_monitor_and_its_target() -> None:
    raw = {
        "name": "a",
        "model": {"builtin": "mlp"},
        "data": {"dataset": "digits"},
        "training": {"metrics": ["sparse_top_k_categorical_accuracy"]},
        "stop": {"monitor": "sparse_top_k_categorical_accuracy", "target": 0.9},
    }
    job = Job.model_validate(raw)
    assert job.monitor == Monitor("sparse_top_k_categorical_accuracy", "max")
    assert measured_names(job.data, job.training) == ["loss", "accuracy", "sparse_top_k_categorical_accuracy"]


def test_a_monitor_is_refused_with_its_line(tmp_path: Any) -> None:
    from vcdl.job import load_job

    path = tmp_path / "job.yaml"
    path.write_text("name: a\nmodel: {builtin: mlp}\ndata: {dataset: digits}\nstop:\n  monitor: auc\n")
    with pytest.raises(JobError, match=r"job.yaml:5: stop > monitor: auc is not measured, add it"):
        load_job(path)
