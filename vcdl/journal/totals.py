"""Totals of a job's journal: counts, sums and the last event of some kinds.

Their size does not grow with the updates.
"""

from collections import deque
from dataclasses import dataclass, field

from vcdl.journal.events import (
    EpochClosed,
    EvaluatorDied,
    Event,
    ResultRefused,
    RunStarted,
    SettingsChanged,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)

_RECENT_UPDATES = 30
"""Number of updates that rates are measured over: enough to be steady, few enough to show that a run has become slow.
"""


@dataclass(frozen=True)
class RecentUpdate:
    """One of the last updates."""

    wall_s: float
    """Active seconds at which it was applied."""
    samples: int


@dataclass
class Totals:
    """Counts and sums over a job's events: pass each event to `follow` in order, then read the fields."""

    created: int = 0
    rate_highest: float = 0.0
    """The highest learning rate of a workunit, as a factor of the job's peak."""
    rate_trial: str = ""
    """The result of trying learning rates before the job, as text; empty in an older journal."""
    applied: int = 0
    failed: int = 0
    refused: int = 0
    superseded: int = 0
    lost: int = 0
    """Applied updates that another server had overwritten, as counted when the last epoch closed or the job ended."""
    samples_trained: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    staleness_sum: int = 0
    staleness_max: int | None = None
    """The highest staleness of all updates; None before the first one."""
    recent: deque[RecentUpdate] = field(default_factory=lambda: deque(maxlen=_RECENT_UPDATES))
    """The last updates, the newest last."""
    last_setback: WorkunitFailed | UpdateRefused | ResultRefused | None = None
    """The last event after which a workunit had to be created again, or None without one."""
    evaluator_death: EvaluatorDied | None = None
    """The last death of the evaluator, or None if it never died or has evaluated a version since."""
    changes: list[str] = field(default_factory=list)
    """The settings that were changed after the job began, each like `boinc.share=3`."""

    def follow(self, event: Event, wall_s: float) -> None:
        """Apply the next journal event.

        Args:
            event: The event.
            wall_s: Active seconds of the job at its time.
        """
        match event:
            case RunStarted():
                self.rate_trial = event.rate_trial
            case WorkunitCreated():
                self.created += 1
                self.rate_highest = max(event.rate, self.rate_highest)
            case WorkunitSent():
                self.bytes_down += event.bytes_down
            case UpdateApplied():
                self.applied += 1
                self.samples_trained += event.samples
                self.bytes_up += event.bytes_up
                self.staleness_sum += event.staleness
                self.staleness_max = max(event.staleness, self.staleness_max or 0)
                self.recent.append(RecentUpdate(wall_s, event.samples))
            case WorkunitFailed():
                self.failed += 1
                self.last_setback = event
            case UpdateRefused() | ResultRefused():
                self.refused += 1
                self.bytes_up += event.bytes_up
                self.last_setback = event
            case UpdateSuperseded():
                self.superseded += 1
                self.bytes_up += event.bytes_up
            case EvaluatorDied():
                self.evaluator_death = event
            # A measurement shows that the evaluator works again.
            case VersionEvaluated():
                self.evaluator_death = None
            # The events contain the total so far, so the last one replaces the earlier ones.
            case EpochClosed() | StopDecided():
                self.lost = event.lost
            case SettingsChanged():
                self.changes.append(event.changes)
