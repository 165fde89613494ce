"""Compute every figure that is shown of a run, from its journal.

Times are active times: pauses between sessions are left out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from vcdl.journal.events import FINAL_SPLITS, Recorded, StopDecided, StopReason, VersionEvaluated
from vcdl.journal.history import JobHistory
from vcdl.journal.monitor import EpochDetail, Monitor
from vcdl.journal.totals import Totals


@dataclass(frozen=True)
class Rates:
    """The present speed of the run."""

    updates_s: float
    """Updates per second."""
    samples_s: float
    """Training samples per second."""


@dataclass
class Report:
    """The figures of a run so far.

    Call `follow` with each journal event in order, then read.
    """

    history: JobHistory = field(default_factory=JobHistory)
    """The history of events, from which the coordinator decides as well."""

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """Return the report of a sequence of events."""
        return cls(JobHistory.of(events))

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
        self.history.follow(recorded)

    @property
    def totals(self) -> Totals:
        """Counts and sums over all events."""
        return self.history.totals

    # -- the job's state

    @property
    def subtasks_done(self) -> int:
        """Number of subtasks with an applied update; a reissued one counts once."""
        return sum(self.history.applied_by_epoch.values())

    @property
    def rolled_back_updates(self) -> int:
        """Number of applied updates that a rollback removed from the weights."""
        return sum(len(rolled.dropped) for rolled in self.history.rollbacks)

    @property
    def stop(self) -> StopDecided | None:
        """The event that ended the job, with its reason and version; None while the job is open."""
        return self.history.stop

    @property
    def is_given_up(self) -> bool:
        """Whether the job ended because a shard kept failing: `vcdl resume` tries it again."""
        return self.stop is not None and self.stop.reason == StopReason.SUBTASK_FAILED

    # -- figures

    @property
    def wall_s(self) -> float:
        """Active seconds up to the last event."""
        return self.history.wall_s

    @property
    def retried(self) -> int:
        """Number of workunits that were created because an earlier attempt at the same subtask had failed."""
        return self.totals.created - self.history.made

    @property
    def epochs(self) -> Sequence[EpochDetail]:
        """Epochs that are closed and evaluated, in order."""
        return self.history.epochs

    @property
    def monitor(self) -> Monitor:
        """The measure by which the job is judged."""
        return self.history.monitor

    @property
    def best_epoch(self) -> EpochDetail | None:
        """The epoch with the best mean by the monitor; None before the first, and if all have diverged."""
        best = self.history.best_epoch
        return best if best is not None and math.isfinite(best.mean) else None

    def final(self, split: str) -> VersionEvaluated | None:
        """Return the last version's measures on a split of FINAL_SPLITS; None if not measured yet."""
        return self.history.measured.get((self.stop.version, split)) if self.stop is not None else None

    @property
    def final_validation(self) -> VersionEvaluated | None:
        """The measures of the job's last version on the whole validation set."""
        return self.final(FINAL_SPLITS[0])

    @property
    def final_test(self) -> VersionEvaluated | None:
        """The measures of the job's last version on the test set."""
        return self.final(FINAL_SPLITS[1])

    @property
    def staleness_mean(self) -> float | None:
        """Mean staleness over all updates; None before the first one."""
        return self.totals.staleness_sum / self.totals.applied if self.totals.applied else None

    def rates(self, now_s: float) -> Rates | None:
        """Return the speed over the last updates at a Unix time; None before there are two."""
        recent = self.totals.recent
        if len(recent) < 2:
            return None
        # Up to now and not to the last update, so that the speed falls while no update arrives.
        span_s = self.history.wall_s_at(now_s) - recent[0].wall_s
        if span_s <= 0:
            return None
        # The first of them ended when the span began, so its samples were trained before it.
        samples = sum(update.samples for update in recent) - recent[0].samples
        return Rates((len(recent) - 1) / span_s, samples / span_s)
