"""The state of runs for `vcdl status`, `vcdl jobs` and the pages: one run with all figures, or many in rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcdl.errors import JobError, printable
from vcdl.job import Job
from vcdl.job.lr_schedule import RateTrial
from vcdl.journal.journal import Clock
from vcdl.planner.time_left import money_to_end
from vcdl.report.measures import Report
from vcdl.report.note import RunNote
from vcdl.report.own_settings import own_settings
from vcdl.report.progress import (
    Costs,
    RunGoal,
    epoch_at_work,
    measured_words,
    range_left,
    seconds_left,
    status_figures,
)
from vcdl.report.side_by_side import ComparedRun
from vcdl.report.summary import summary_of
from vcdl.report.wording import align_columns, duration
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import NOBODY_WORKS, RunState, clock_of, read_report, state_of
from vcdl.yaml_schema.file_kind import CLIENTS
from vcdl.yaml_schema.reading import read_document

_OPEN = (RunState.RUNNING, RunState.WAITING)
_TRIALS = {
    RateTrial.CHOSE.value: ", chosen by a trial",
    RateTrial.UNDECIDED.value: "; a trial learned nothing at any rate",
}
_COURSE = 60
"""Epochs of a curve, since a small picture has no room for more."""


@dataclass(frozen=True)
class Standing:
    """A run's state, figures and costs."""

    folder: RunFolder
    job: Job
    report: Report
    state: RunState
    now_s: float | None
    """The current time by the run's clock, or None if no process drives the run or it is a simulation."""
    costs: Costs | None = None
    """Returns the costs of its fleet so far in USD and in USD per hour; None without a fleet."""

    @classmethod
    def of(
        cls,
        folder: RunFolder,
        job: Job | None = None,
        report: Report | None = None,
        clock: Clock | None = None,
        costs: Costs | None = None,
    ) -> "Standing":
        """Return a run's standing; arguments that are None are read from its folder.

        Raises:
            RunFolderError, JobError, JournalError: The run cannot be read.
        """
        job = read_frozen(folder) if job is None else job
        report = read_report(folder) if report is None else report
        state = state_of(folder, report)
        # A paused run would count the pause as work, and a simulated run has no current time.
        is_timed = state is RunState.RUNNING and folder.kind.has_wall_clock
        return cls(folder, job, report, state, (clock or clock_of(folder))() if is_timed else None, costs)

    @property
    def goal(self) -> RunGoal:
        """The goal that ends the run."""
        return RunGoal.of(self.job, self.costs)

    @property
    def changes(self) -> str:
        """The settings that were changed after the run started, or an empty string."""
        return " ".join(self.report.totals.changes)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the run's end, or None if no process runs it or its speed is not known yet."""
        return None if self.now_s is None else seconds_left(self.goal, self.report, self.now_s)

    @property
    def range_left(self) -> tuple[float, float] | None:
        """Least and most seconds until the run's end, or None if unknown."""
        return None if self.now_s is None else range_left(self.goal, self.report, self.now_s)

    def figures(self) -> dict[str, str]:
        """Return the lines of `vcdl status`: label → text."""
        figures = status_figures(self.goal, self.report, self.now_s)
        if rate := self._rate:
            figures["rate"] = rate
        if self.changes:
            figures["changed"] = self.changes
        if self.state in NOBODY_WORKS:
            figures["time left"] = "unknown while no host works on it"
        return figures

    @property
    def highest_rate(self) -> float:
        """The highest learning rate of any workunit, which a trial may have chosen; 0 before the first."""
        return self.report.totals.rate_highest * self.job.training.peak_rate

    @property
    def _rate(self) -> str:
        """The learning rate as text, or an empty string before the first workunit."""
        if not (highest := self.highest_rate):
            return ""
        trial = _TRIALS.get(self.report.totals.rate_trial, "")
        return f"{highest:.3g} at most{trial}"

    def as_column(self, name: str) -> ComparedRun:
        """Return this run as a column of a comparison; `name` must differ from those of the other columns."""
        return ComparedRun(
            name=name,
            folder=str(self.folder.path),
            state=self.state.value,
            kind=self.folder.kind.name,
            job=self.job.name,
            settings={key: value for key, value in self.job.to_plain_values().items() if key != "name"},
            clients=_clients_of(self.folder),
            report=self.report,
            epochs_wanted=self.job.stop.epochs,
            changed=self.changes,
            highest_rate=self.highest_rate,
            has_wall_clock=self.folder.kind.has_wall_clock,
        )

    def fields(self, **beside: Any) -> dict[str, Any]:
        """Return the keys of `vcdl status --json`, plus those that only the caller knows."""
        left_s, between = self.seconds_left, self.range_left
        fields = {
            "folder": str(self.folder.path),
            "state": self.state.value,
            "process": self.folder.running_pid,
            **beside,
            "changed": self.changes,
            "epochs_wanted": self.goal.epochs,
            "shards": self.goal.shards,
            "seconds_left": None if left_s is None else round(left_s, 1),
            "seconds_left_range": between,
            **summary_of(self.job.name, self.report),
        }
        if self.costs is not None:
            spent_usd, usd_per_h = self.costs()
            to_end = None if between is None else money_to_end(usd_per_h, between)
            fields |= {"spent_usd": spent_usd, "usd_per_h": usd_per_h, "usd_to_end": to_end}
        return fields


@dataclass(frozen=True)
class JobRow:
    """A job's row in a table of jobs."""

    job: str
    trains: str
    """The job's model and data, as text for users."""
    state: RunState
    epoch: int
    epochs: int
    monitor: str
    """The metric by which the job is judged."""
    value: str
    """The monitor's value at the last measured epoch, as text."""
    mean: float | None
    """The monitor's mean over the last measured epoch, or None before the first."""
    score: float | None
    """The same, negated if a smaller value is better, so that jobs can be ranked by it; None also if it is not
    finite."""
    share: int | None
    """The job's share of the clients, or None if it does not share them."""
    hosts: int
    """Number of hosts that uploaded an update."""
    seconds_left: float | None
    range_left: tuple[float, float] | None
    """Least and most seconds until the job's end, or None if unknown."""
    course: tuple[float, ...]
    """The monitor's means over the last evaluated epochs, at most _COURSE, oldest first."""
    bytes_down: float
    """Bytes that a client downloads for a task, on average: an upper bound, because clients keep shards."""
    bytes_up: float
    """Bytes that a client uploads for a task."""
    settings: Mapping[str, tuple[str, str]]
    """Key of each setting that differs from its default → value and default, as text."""
    note: RunNote

    @classmethod
    def of(cls, standing: Standing, hosts: int) -> "JobRow":
        """Return the row of a run.

        Args:
            standing: The run.
            hosts: Number of hosts that uploaded an update.

        Raises:
            RunFolderError: The run cannot be read.
        """
        folder, job, report = standing.folder, standing.job, standing.report
        course = tuple(detail.mean for detail in report.epochs[-_COURSE:])
        mean = course[-1] if course else None
        totals = report.totals
        return cls(
            job=folder.path.name,
            trains=_model_and_data(job),
            state=standing.state,
            epoch=epoch_at_work(standing.goal, report),
            epochs=standing.goal.epochs,
            monitor=report.monitor.name,
            value=measured_words(mean, report.monitor),
            mean=mean,
            score=None if mean is None or not math.isfinite(mean) else report.monitor.score(mean),
            share=job.boinc.share if folder.kind.has_daemons else None,
            hosts=hosts,
            seconds_left=standing.seconds_left,
            range_left=standing.range_left,
            course=course,
            bytes_down=totals.bytes_down / max(1, totals.applied),
            bytes_up=totals.bytes_up / max(1, totals.applied),
            settings={key: both for key, both in own_settings(job).items() if key != "name"},
            note=RunNote.read(folder.note_file),
        )

    @property
    def is_open(self) -> bool:
        """Whether the job has a share of the project's clients."""
        return self.state in _OPEN

    def fields(self, part: float | None = None) -> dict[str, Any]:
        """Return the job's object in the output of `vcdl jobs --json`.

        Args:
            part: The fraction of the project's clients that work for this job, or None if unknown.
        """
        return {
            "job": self.job,
            "state": self.state.value,
            "trains": self.trains,
            "epoch": self.epoch,
            "epochs_wanted": self.epochs,
            "monitor": self.monitor,
            "value": self.mean,
            "measure": f"{self.monitor} {self.value}",
            "share": self.share,
            "part": part,
            "hosts": self.hosts,
            "note": self.note.text,
            "tags": self.note.tags,
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "seconds_left_range": self.range_left,
        }


def job_rows(folders: Sequence[RunFolder], hosts: Callable[[RunFolder], int]) -> list[JobRow]:
    """Return a row for each run, open jobs first, then by name.

    Args:
        folders: The runs.
        hosts: Returns how many hosts have uploaded an update to a run.

    Raises:
        RunFolderError, JobError, JournalError: A run cannot be read.
    """
    rows = (JobRow.of(Standing.of(folder), hosts(folder)) for folder in folders)
    return sorted(rows, key=lambda row: (not row.is_open, row.job))


def part_of(row: JobRow, rows: Sequence[JobRow]) -> float | None:
    """Return which fraction of a project's clients works for a job, by its share of all open jobs' shares.

    Args:
        row: The job.
        rows: All jobs of the project.

    Returns:
        None for a job that is not open or does not share clients.
    """
    if row.share is None or not row.is_open:
        return None
    return row.share / sum(other.share for other in rows if other.share is not None and other.is_open)


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table that `vcdl jobs` prints, with a header line.

    Args:
        rows: `JobRow.fields` of each job. A job that cannot be read has a `state` of None and its `error`.
    """
    table = [("job", "state", "epoch", "measure", "share", "hosts", "time left")]
    for row in rows:
        name = printable(row["job"])
        if row["state"] is None:
            table.append((name, "unreadable", "–", printable(row["error"]), "–", "–", "–"))
            continue
        part, left_s = row["part"], row["seconds_left"]
        share = "–" if row["share"] is None else f"{row['share']}" if part is None else f"{row['share']} ({part:.0%})"
        time_left = "–" if left_s is None else f"about {duration(left_s)}"
        epoch = f"{row['epoch']}/{row['epochs_wanted']}"
        table.append((name, row["state"], epoch, row["measure"], share, str(row["hosts"]), time_left))
    return align_columns(table, left=range(5))


def _clients_of(folder: RunFolder) -> Mapping[str, Any]:
    """Return the settings of a run's simulated clients; empty for a run on real ones, and for a damaged file."""
    try:
        return dict(read_document(folder.clients_file, CLIENTS).values)
    except JobError:
        return {}


def _model_and_data(job: Job) -> str:
    """Return a text that names a job's model and data, such as `mlp, digits`."""
    model = job.model.builtin.name if job.model.builtin is not None else "a model of its own"
    data = job.data.dataset or "data of its own"
    return f"{model}, {data}"
