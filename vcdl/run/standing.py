"""The standing of a run: job, state and figures, as `vcdl status`, `vcdl jobs` and the pages show them."""

from dataclasses import dataclass
from typing import Any

from vcdl.job import Job
from vcdl.journal.journal import Clock
from vcdl.planner.time_left import money_to_end
from vcdl.report.measures import Report
from vcdl.report.progress import Costs, RunGoal, range_left, seconds_left, status_figures
from vcdl.report.summary import summary_of
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import NOBODY_WORKS, RunState, clock_of, read_report, state_of


@dataclass(frozen=True)
class Standing:
    """How a run stands."""

    folder: RunFolder
    job: Job
    report: Report
    state: RunState
    now_s: float | None
    """The time by the run's clock; None where no process drives it, or its times are those of a simulation."""
    costs: Costs | None = None
    """Tells what its fleet has cost and costs; None: it has none."""

    @classmethod
    def of(
        cls,
        folder: RunFolder,
        job: Job | None = None,
        report: Report | None = None,
        clock: Clock | None = None,
        costs: Costs | None = None,
    ) -> "Standing":
        """Read what is not given. Raises RunFolderError, JobError, JournalError."""
        job = read_frozen(folder) if job is None else job
        report = read_report(folder) if report is None else report
        state = state_of(folder, report)
        is_timed = state is RunState.RUNNING and folder.kind.has_wall_clock
        return cls(folder, job, report, state, (clock or clock_of(folder))() if is_timed else None, costs)

    @property
    def goal(self) -> RunGoal:
        """The end that it trains towards."""
        return RunGoal.of(self.job, self.costs)

    @property
    def changes(self) -> str:
        """The settings that were changed after it began; empty: none."""
        return " ".join(self.report.totals.changes)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until its end; None: nobody runs it, or the speed is not known yet."""
        return None if self.now_s is None else seconds_left(self.goal, self.report, self.now_s)

    @property
    def range_left(self) -> tuple[float, float] | None:
        """Least and most of them."""
        return None if self.now_s is None else range_left(self.goal, self.report, self.now_s)

    def figures(self) -> dict[str, str]:
        """Labels and words."""
        figures = status_figures(self.goal, self.report, self.now_s)
        if self.changes:
            figures["changed"] = self.changes
        if self.state in NOBODY_WORKS:
            figures["time left"] = "not known while nobody works on it"
        return figures

    def fields(self, **beside: Any) -> dict[str, Any]:
        """The keys of `vcdl status --json`, with what only a caller knows."""
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
