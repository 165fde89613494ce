"""The jobs of a project, or the runs of a folder, each in a row."""

from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.job import Job
from vcdl.report.measures import Report
from vcdl.report.progress import RunGoal, epoch_at_work, measured_words, seconds_left
from vcdl.report.wording import aligned, duration
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import RunState, clock_of, read_hosts, read_report, state_of

_OPEN = (RunState.RUNNING, RunState.WAITING)


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
    bytes_down: float
    """What a client gets for a task, on average: an upper bound where clients keep shards."""
    bytes_up: float
    """What it sends back."""

    @classmethod
    def of(cls, folder: RunFolder) -> "JobRow":
        """Raises RunFolderError, JobError, JournalError."""
        job, report = read_frozen(folder), read_report(folder)
        goal, state, totals = RunGoal.of(job), state_of(folder, report), report.totals
        mean = _mean(report)
        now_s = clock_of(folder)() if state is RunState.RUNNING and folder.kind.has_wall_clock else None
        return cls(
            job=folder.path.name,
            trains=_trained(job),
            state=state,
            epoch=epoch_at_work(goal, report),
            epochs=goal.epochs,
            monitor=report.monitor.name,
            value=measured_words(mean, report.monitor),
            mean=mean,
            share=job.boinc.share if folder.kind.has_daemons else None,
            hosts=sum(host.applied > 0 for host in read_hosts(folder).hosts.values()),
            seconds_left=None if now_s is None else seconds_left(goal, report, now_s),
            bytes_down=totals.bytes_down / max(1, totals.applied),
            bytes_up=totals.bytes_up / max(1, totals.applied),
        )

    @property
    def is_open(self) -> bool:
        """Whether it takes part in the shares."""
        return self.state in _OPEN


def job_rows(folders: Sequence[RunFolder]) -> list[JobRow]:
    """A row for each run: the open ones first, each group by name."""
    return sorted((JobRow.of(folder) for folder in folders), key=lambda row: (not row.is_open, row.job))


def part_of(row: JobRow, rows: Sequence[JobRow]) -> float | None:
    """The part of the clients that an open job has; None for others."""
    if row.share is None or not row.is_open:
        return None
    return row.share / sum(other.share for other in rows if other.share is not None and other.is_open)


def lines_of(rows: Sequence[JobRow]) -> list[str]:
    """The table, with its head."""
    table = [("job", "state", "epoch", "measure", "share", "hosts", "time left")]
    for row in rows:
        part, left_s = part_of(row, rows), row.seconds_left
        share = "–" if row.share is None else f"{row.share}" if part is None else f"{row.share} ({part:.0%})"
        time_left = "–" if left_s is None else f"about {duration(left_s)}"
        measure, epoch = f"{row.monitor} {row.value}", f"{row.epoch}/{row.epochs}"
        table.append((row.job, row.state.value, epoch, measure, share, str(row.hosts), time_left))
    return aligned(table, left=range(5))


def _trained(job: Job) -> str:
    model = job.model.builtin.name if job.model.builtin is not None else "a model of its own"
    data = job.data.dataset or "data of its own"
    return f"{model}, {data}"


def _mean(report: Report) -> float | None:
    return report.epochs[-1].mean if report.epochs else None
