"""Describe the outcome of a run that has ended, as lines for users."""

from vcdl.journal.events import StopReason
from vcdl.report.measures import Report
from vcdl.report.progress import final_words
from vcdl.report.wording import duration, plural

_REASONS = {
    StopReason.TARGET_ACCURACY: "the target accuracy is reached",
    StopReason.TARGET: "the target is reached",
    StopReason.EPOCHS: "all epochs are done",
    StopReason.NO_IMPROVEMENT: "the {} no longer improves",
    StopReason.WALL_TIME: "its time is up",
    StopReason.SUBTASK_FAILED: "a shard kept failing",
}


def outcome_lines(report: Report) -> list[str]:
    """Return why and when the run ended, and the measures of its last weights on the held-out sets."""
    reason = _REASONS[StopReason(report.stop.reason)].format(report.monitor.name) if report.stop else "it ended"
    lines = [
        f"finished after {plural(len(report.epochs), 'epoch')} and {duration(report.wall_s)} of training: {reason}"
    ]
    return [*lines, *(f"{split:<20} {words}" for split, words in final_words(report))]
