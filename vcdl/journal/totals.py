"""The sums of a job's journal: counts, sums and the last of each kind, nothing that grows with its updates."""

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
"""Rates are measured over these: long enough to be steady, short enough to show that a run has become slow."""


@dataclass(frozen=True)
class RecentUpdate:
    """One of the last updates."""

    wall_s: float
    """Active time at that moment."""
    samples: int


@dataclass
class Totals:
    """Counts and sums over a job's events; `follow` each event in the order of the journal, then read."""

    created: int = 0
    rate_highest: float = 0.0
    """The highest learning rate of a workunit, as a factor of the job's peak."""
    rate_trial: str = ""
    """What trying learning rates before the job gave; empty in an older journal."""
    applied: int = 0
    failed: int = 0
    refused: int = 0
    superseded: int = 0
    lost: int = 0
    """Applied updates that another server had overwritten when the last epoch was closed."""
    samples_trained: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    staleness_sum: int = 0
    staleness_max: int | None = None
    """Over all updates; None before the first one."""
    recent: deque[RecentUpdate] = field(default_factory=lambda: deque(maxlen=_RECENT_UPDATES))
    """The last updates, the newest last."""
    last_setback: WorkunitFailed | UpdateRefused | ResultRefused | None = None
    """The last reason for which a workunit had to be created again."""
    evaluator_death: EvaluatorDied | None = None
    """The last death of the evaluator since it measured something."""
    changes: list[str] = field(default_factory=list)
    """Settings that were changed after the job began, `boinc.share=3`."""

    def follow(self, event: Event, wall_s: float) -> None:
        """Apply the next journal event.

        Args:
            event: The event.
            wall_s: Active seconds at that moment.
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
            # The events have the total so far, so the last one replaces what was known.
            case EpochClosed() | StopDecided():
                self.lost = event.lost
            case SettingsChanged():
                self.changes.append(event.changes)
