"""The figures of an experiment's run, read from its journal."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from benchmarks.experiments.hostile_run import is_of
from benchmarks.experiments.planned_run import PlannedRun
from benchmarks.experiments.targets import Targets, read_targets
from vcdl.journal.events import FINAL_SPLITS, HostConvicted, Recorded, UpdateApplied, UpdateRefused, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.monitor import MIN
from vcdl.report.measures import Report
from vcdl.trust.hosts import HostHistory

_TEST = FINAL_SPLITS[1]


@dataclass(frozen=True)
class Point:
    """The end of an epoch."""

    epoch: int
    wall_s: float
    """Virtual time."""
    validation: float
    """Mean over the versions of the epoch's updates; accuracy, or the loss of a regression."""
    validation_min: float
    validation_max: float
    test: float | None
    """The same for the weights at its end, on the test set; None without a test set."""

    @property
    def value(self) -> float:
        """The figure by which the run is judged."""
        return self.validation if self.test is None else self.test


@dataclass(frozen=True)
class Uploads:
    """The uploads of some clients."""

    applied: int
    refused: int


@dataclass(frozen=True)
class RunFigures:
    """A run and its results."""

    run: PlannedRun
    points: tuple[Point, ...]
    final: float | None
    """Final score on the test set, else on the validation set; None: the run ended before it was measured."""
    stop_reason: str
    is_regression: bool
    is_given_up: bool
    """Whether a subtask kept failing, so that the run ended early."""
    failed: int
    refused: int
    staleness_mean: float | None
    bytes_down: float | None
    """Bytes per subtask, including lost ones."""
    bytes_up: float | None
    honest: Uploads = Uploads(0, 0)
    hostile: Uploads = Uploads(0, 0)
    targets: Targets | None = None
    """What attacks on some samples alone have reached; None: not measured."""
    honest_out: int = 0
    """Honest clients that were out of the job at any time."""
    liars: int = 0
    """Clients that attack."""
    found_after: tuple[int, ...] = ()
    """Uploads of each attacking client until it was out of the job, of those that were."""


def measured(run: PlannedRun) -> RunFigures:
    """The figures of a finished run. Raises JournalError, FileUnavailable."""
    journal = Journal.read_only(run.folder.journal_file)
    try:
        events = list(journal.stream())
    finally:
        journal.close()
    report, liars = Report.of(events), [one.client for one in run.fleet.hostile if one.attack != "none"]
    out = _uploads_until_out(events, run.fleet.clients)
    final = report.final_test or report.final_validation
    return RunFigures(
        run=run,
        points=_points(report, events),
        final=report.monitor.value(final) if final else None,
        stop_reason=report.stop.reason if report.stop else "",
        is_regression=report.monitor.mode == MIN,
        is_given_up=report.is_given_up,
        failed=report.totals.failed,
        refused=report.totals.refused,
        staleness_mean=report.staleness_mean,
        bytes_down=report.totals.bytes_down / report.totals.applied if report.totals.applied else None,
        bytes_up=report.totals.bytes_up / report.totals.applied if report.totals.applied else None,
        honest=_uploads(events, liars, are_of=False),
        hostile=_uploads(events, liars, are_of=True),
        targets=read_targets(run.folder),
        honest_out=len(out.keys() - set(liars)),
        liars=len(liars),
        found_after=tuple(out[client] for client in liars if client in out),
    )


def _uploads(events: Iterable[Recorded], clients: Collection[int], *, are_of: bool) -> Uploads:
    """The uploads of these clients, or of all others."""
    uploads = [row.event for row in events if isinstance(row.event, UpdateApplied | UpdateRefused)]
    kinds = [type(upload) for upload in uploads if is_of(upload.host, clients) is are_of]
    return Uploads(kinds.count(UpdateApplied), kinds.count(UpdateRefused))


def _uploads_until_out(events: Iterable[Recorded], clients: int) -> dict[int, int]:
    """Each client of which a host was out of the job, with its uploads until then."""
    history, uploads, out = HostHistory(), Counter[int](), dict[int, int]()
    for row in events:
        history.follow(row)
        if isinstance(row.event, UpdateApplied | UpdateRefused):
            uploads.update(client for client in range(clients) if is_of(row.event.host, [client]))
        if isinstance(row.event, UpdateRefused | HostConvicted):
            banned = [host for host in history.hosts if history.is_out(host)]
            found = {client for client in range(clients) for host in banned if is_of(host, [client])}
            out |= {client: uploads[client] for client in found - out.keys()}
    return out


def _points(report: Report, events: Iterable[Recorded]) -> tuple[Point, ...]:
    measured = [row.event for row in events if isinstance(row.event, VersionEvaluated)]
    tested = {one.version: report.monitor.value(one) for one in measured if one.split == _TEST}
    return tuple(
        Point(
            epoch=detail.epoch,
            wall_s=detail.wall_s,
            validation=detail.mean,
            validation_min=detail.min,
            validation_max=detail.max,
            test=tested.get(report.history.closed[detail.epoch].event.version),
        )
        for detail in report.epochs
    )
