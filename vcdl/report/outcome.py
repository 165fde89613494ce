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


def end_reason(reason: str, monitor: str) -> str:
    """Return why a run ended, in words.

    Args:
        reason: The StopReason, or an empty string if the run has none.
        monitor: The name of the job's monitor.
    """
    return _REASONS[StopReason(reason)].format(monitor) if reason else "it ended"


def outcome_lines(report: Report, of: str = "training") -> list[str]:
    """Return why and when the run ended, and the measures of its last weights on the held-out sets.

    Args:
        report: The run.
        of: What its seconds are.
    """
    reason = end_reason(report.stop.reason if report.stop else "", report.monitor.name)
    lines = [f"finished after {plural(len(report.epochs), 'epoch')} and {duration(report.wall_s)} of {of}: {reason}"]
    return [*lines, *(f"{split:<20} {words}" for split, words in final_words(report))]
