"""TensorBoard's event file of a run, from its journal. Only `tensorboard`'s record format is used, no TensorFlow."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.events import Recorded, UpdateApplied, VersionEvaluated
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


def write_event_file(folder: Path, report: Report, events: Iterable[Recorded]) -> Path:
    """Write the event file into `folder`; returns its path. `events`: the whole journal's. Raises RunFolderError."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    points = scalars(report, events)
    first = next(points, None)
    begin_s = first.time_s if first is not None else 0.0
    path = folder / _FILE
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=begin_s, file_version=_FILE_VERSION).SerializeToString())
            for tag, step, value, time_s in chain([first] if first is not None else [], points):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.write(Event(wall_time=time_s, step=step, summary=summary).SerializeToString())
            writer.flush()
    return path


def scalars(report: Report, events: Iterable[Recorded]) -> Iterator[Scalar]:
    """All points of a run, in the order of their times."""
    return merge(_points(events), _epochs(report), key=attrgetter("time_s"))


def _points(events: Iterable[Recorded]) -> Iterator[Scalar]:
    for recorded in events:
        event, time_s = recorded.event, recorded.time_s
        if isinstance(event, VersionEvaluated):
            for name, value in event.measures.items():
                yield Scalar(f"{event.split}/{name}", event.version, value, time_s)
        elif isinstance(event, UpdateApplied):
            if event.loss is not None:
                yield Scalar("training/loss", event.version, event.loss, time_s)
            yield Scalar("update/staleness", event.version, event.staleness, time_s)
            yield Scalar("update/weight_given", event.version, event.weight, time_s)


def _epochs(report: Report) -> Iterator[Scalar]:
    for detail in report.epochs:
        closed = report.history.closed[detail.epoch]
        judged = {"mean": detail.mean, "min": detail.min, "max": detail.max}
        trained = {"train_loss": detail.train_loss} if detail.train_loss is not None else {}
        measured = {f"validation_{name}": value for name, value in detail.measures.items()}
        for name, value in {**judged, **measured, **trained}.items():
            yield Scalar(f"epoch/{name}", detail.epoch, value, closed.time_s)
