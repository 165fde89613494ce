"""The jobs of a project, or the runs of a folder, each in a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcdl.errors import printable
from vcdl.job import Job
from vcdl.journal.hosts import HostHistory
from vcdl.report.progress import epoch_at_work, measured_words
from vcdl.report.wording import aligned, duration
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunState, read_hosts
from vcdl.run.standing import Standing

_OPEN = (RunState.RUNNING, RunState.WAITING)
_COURSE = 60
"""Epochs of a course: what a small picture has room for."""


@dataclass(frozen=True)
class JobRow:
    """A job and how far it is."""

    job: str
    trains: str
    """Its model and data, in words."""
    state: RunState
    epoch: int
    epochs: int
    monitor: str
    """The measure by which it is judged."""
    value: str
    """The last measured epoch's, in words."""
    mean: float | None
    share: int | None
    """Its share of the clients; None where it does not share them."""
    hosts: int
    """Hosts that brought an update."""
    seconds_left: float | None
    range_left: tuple[float, float] | None
    """Least and most of them."""
    course: tuple[float, ...]
    """The means of its last measured epochs."""
    bytes_down: float
    """Bytes that a client gets for a task, on average: an upper bound where clients keep shards."""
    bytes_up: float
    """Bytes that it sends back."""

    @classmethod
    def of(cls, standing: Standing, hosts: HostHistory) -> "JobRow":
        """The row of a run with this standing and these hosts. Raises RunFolderError."""
        folder, job, report = standing.folder, standing.job, standing.report
        course = tuple(detail.mean for detail in report.epochs[-_COURSE:])
        mean = course[-1] if course else None
        totals = report.totals
        return cls(
            job=folder.path.name,
            trains=_trained(job),
            state=standing.state,
            epoch=epoch_at_work(standing.goal, report),
            epochs=standing.goal.epochs,
            monitor=report.monitor.name,
            value=measured_words(mean, report.monitor),
            mean=mean,
            share=job.boinc.share if folder.kind.has_daemons else None,
            hosts=sum(host.applied > 0 for host in hosts.hosts.values()),
            seconds_left=standing.seconds_left,
            range_left=standing.range_left,
            course=course,
            bytes_down=totals.bytes_down / max(1, totals.applied),
            bytes_up=totals.bytes_up / max(1, totals.applied),
        )

    @property
    def is_open(self) -> bool:
        """Whether the job has a share of the project's clients."""
        return self.state in _OPEN

    def fields(self, part: float | None = None) -> dict[str, Any]:
        """The keys of `vcdl jobs --json`; `part`: its part of the clients."""
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
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "seconds_left_range": self.range_left,
        }


def job_rows(folders: Sequence[RunFolder]) -> list[JobRow]:
    """A row for each run: the open ones first, each group by name. Raises RunFolderError, JobError, JournalError."""
    rows = (JobRow.of(Standing.of(folder), read_hosts(folder)) for folder in folders)
    return sorted(rows, key=lambda row: (not row.is_open, row.job))


def part_of(row: JobRow, rows: Sequence[JobRow]) -> float | None:
    """The part of the clients that an open job has; None for others."""
    if row.share is None or not row.is_open:
        return None
    return row.share / sum(other.share for other in rows if other.share is not None and other.is_open)


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of such fields, with its head; a job that cannot be read has `error`."""
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
    return aligned(table, left=range(5))


def _trained(job: Job) -> str:
    model = job.model.builtin.name if job.model.builtin is not None else "a model of its own"
    data = job.data.dataset or "data of its own"
    return f"{model}, {data}"
