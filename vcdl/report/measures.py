"""Compute the figures of a run from its journal, for every display and file.

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
    """The speed of a run over its last updates."""

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
    """The history from which all figures follow; the coordinator decides from the same."""

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """Return the report of a journal's events, given in order."""
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
        """Whether the job ended because a subtask failed as often as allowed; `vcdl resume` then tries it again."""
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
        """The metric by which the job is judged."""
        return self.history.monitor

    @property
    def best_epoch(self) -> EpochDetail | None:
        """The epoch with the best mean of the monitor. None if no epoch is evaluated yet, or if all have diverged."""
        best = self.history.best_epoch
        return best if best is not None and math.isfinite(best.mean) else None

    def final(self, split: str) -> VersionEvaluated | None:
        """Return the evaluation of the job's result on a split of FINAL_SPLITS, or None if there is none yet."""
        return self.history.measured.get((self.stop.version, split)) if self.stop is not None else None

    @property
    def final_validation(self) -> VersionEvaluated | None:
        """The evaluation of the job's result on the whole validation set, or None if there is none yet."""
        return self.final(FINAL_SPLITS[0])

    @property
    def final_test(self) -> VersionEvaluated | None:
        """The evaluation of the job's result on the test set, or None if there is none (yet)."""
        return self.final(FINAL_SPLITS[1])

    @property
    def staleness_mean(self) -> float | None:
        """Mean staleness over all updates, or None before the first one."""
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
