"""The figures of a run of an experiment, read from its journal."""

from dataclasses import dataclass

from vcdl.coordinator import FINAL_SPLITS
from vcdl.experiments.planned_run import PlannedRun
from vcdl.report.measures import Report, measure
from vcdl.run.finding import read_report

_TEST = FINAL_SPLITS[1]


@dataclass(frozen=True)
class Point:
    """The end of an epoch."""

    epoch: int
    wall_s: float
    """Virtual time."""
    validation: float
    """Mean over the versions that the epoch's updates made; accuracy, or the loss of a regression."""
    validation_min: float
    validation_max: float
    test: float | None
    """Of the weights at its end; None: the data have no test set."""

    @property
    def value(self) -> float:
        """What the run is judged by."""
        return self.validation if self.test is None else self.test


@dataclass(frozen=True)
class Measured:
    """A run and what it came to."""

    run: PlannedRun
    points: tuple[Point, ...]
    final: float | None
    """On the test set, else on the validation set; None: it ended before anything was measured."""
    stop_reason: str
    is_regression: bool
    is_given_up: bool
    """A subtask kept failing: the run did not come to its end."""
    failed: int
    refused: int
    staleness_mean: float | None
    bytes_down: float | None
    """A subtask, what was lost included."""
    bytes_up: float | None


def measured(run: PlannedRun) -> Measured:
    """Of a finished run. Raises JournalError."""
    report = read_report(run.folder)
    final = report.final_test or report.final_validation
    return Measured(
        run=run,
        points=_points(report),
        final=measure(final) if final else None,
        stop_reason=report.stop.reason if report.stop else "",
        is_regression=report.is_regression,
        is_given_up=report.is_given_up,
        failed=report.failed,
        refused=report.refused,
        staleness_mean=report.staleness_mean,
        bytes_down=report.bytes_down / len(report.updates) if report.updates else None,
        bytes_up=report.bytes_up / len(report.updates) if report.updates else None,
    )


def _points(report: Report) -> tuple[Point, ...]:
    tested = {timed.event.version: measure(timed.event) for timed in report.evaluations if timed.event.split == _TEST}
    return tuple(
        Point(
            detail.epoch,
            detail.wall_s,
            detail.mean,
            detail.min,
            detail.max,
            tested.get(report.closed[detail.epoch].event.version),
        )
        for detail in report.epochs
    )
