"""TensorBoard's event file of a run, written from its journal; `tensorboard --logdir RUN/tensorboard` shows it.

Scalars: accuracy and loss by version of the weights, for each split; loss, staleness and weight of each update; the
epochs' means. Only the record format of the `tensorboard` package is used: TensorFlow is not imported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.report.measures import Report

_FILE = "events.out.tfevents.vcdl"
"""The one event file of a run. TensorBoard reads files with `tfevents` in their names."""
_FILE_VERSION = "brain.Event:2"


class Scalar(NamedTuple):
    """One point of one curve."""

    tag: str
    step: int
    """A version of the weights; in `epoch/…` an epoch."""
    value: float
    time_s: float
    """Unix time."""


def write_event_file(folder: Path, report: Report) -> Path:
    """Write the run's event file into `folder` atomically and return its path. Raises RunFolderError."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    points = sorted(scalars(report), key=lambda scalar: scalar.time_s)
    begin_s = points[0].time_s if points else 0.0
    path = folder / _FILE
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=begin_s, file_version=_FILE_VERSION).SerializeToString())
            for tag, step, value, time_s in points:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.write(Event(wall_time=time_s, step=step, summary=summary).SerializeToString())
            writer.flush()
    return path


def scalars(report: Report) -> Iterator[Scalar]:
    """All points of a run, curve by curve."""
    for timed in report.evaluations:
        evaluated = timed.event
        yield Scalar(f"{evaluated.split}/loss", evaluated.version, evaluated.loss, timed.time_s)
        if evaluated.accuracy is not None:
            yield Scalar(f"{evaluated.split}/accuracy", evaluated.version, evaluated.accuracy, timed.time_s)
    for update in report.updates:
        version, applied = update.event.version, update.event
        if applied.loss is not None:
            yield Scalar("training/loss", version, applied.loss, update.time_s)
        yield Scalar("update/staleness", version, applied.staleness, update.time_s)
        yield Scalar("update/weight_given", version, applied.weight, update.time_s)
    for detail in report.epochs:
        closed = report.closed[detail.epoch]
        for name, value in (("mean", detail.mean), ("min", detail.min), ("max", detail.max)):
            yield Scalar(f"epoch/{name}", detail.epoch, value, closed.time_s)
