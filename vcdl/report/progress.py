"""Describe the progress of a run in words, for the live display, the plain lines and `vcdl status`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcdl.errors import printable
from vcdl.journal.events import (
    FINAL_SPLITS,
    EvaluatorDied,
    Event,
    FilesChecked,
    ResultRefused,
    RolledBack,
    RowsRewritten,
    RunStarted,
    StoreRestored,
    UpdateRefused,
    VersionEvaluated,
    WorkunitFailed,
)
from vcdl.journal.monitor import MIN, EpochDetail, Monitor
from vcdl.report.measures import Report
from vcdl.report.wording import duration, group_digits, plural
from vcdl.wire.task import LOSS
from vcdl.wire.workunit import WorkunitName

if TYPE_CHECKING:
    from vcdl.job import Job


_LABEL_WIDTH = 12
"""Longest name of a measure that is a label of its own, in characters, so that columns stay aligned."""


Costs = Callable[[], tuple[float, float]]
"""Returns the dollars that a fleet has cost so far, and its dollars an hour now."""


@dataclass(frozen=True)
class RunGoal:
    """The limits at which a run ends, as far as displays show them."""

    job: str
    epochs: int
    shards: int
    target: float | None = None
    """Value of the monitor at which the run ends, or None if none is set."""
    wall_time_s: float | None = None
    """Active seconds after which the run ends, or None if none are set."""
    costs: Costs | None = None
    """Returns the costs of the run's fleet; None if it has no fleet."""

    @classmethod
    def of(cls, job: "Job", costs: Costs | None = None) -> "RunGoal":
        """Return the limits of a job."""
        target = job.stop.target_accuracy if job.stop.target is None else job.stop.target
        return cls(job.name, job.stop.epochs, job.data.shards, target, job.stop.wall_time_s, costs)

    @property
    def subtasks(self) -> int:
        """Number of subtasks in all epochs."""
        return self.epochs * self.shards


def epoch_at_work(goal: RunGoal, report: Report) -> int:
    """Return the first epoch with shards that are not applied yet."""
    # Epochs may overlap; the first one that is not closed is what a person means by "the epoch".
    return min(len(report.history.closed) + 1, goal.epochs)


def seconds_left(goal: RunGoal, report: Report, now_s: float) -> float | None:
    """Return the seconds until the last epoch or the time limit at the present speed, or None if it is unknown."""
    rates = report.rates(now_s)
    if rates is None:
        return None
    left_s = (goal.subtasks - report.subtasks_done) / rates.updates_s
    if goal.wall_time_s is not None:
        left_s = min(left_s, goal.wall_time_s - report.history.wall_s_at(now_s))
    return max(0.0, left_s)


def measured_words(value: float | None, monitor: Monitor) -> str:
    """Return a value of the monitor as text: with four decimals, such as an accuracy, or four digits if low is better.

    None gives a dash.
    """
    if value is None:
        return "–"
    return f"{value:.4g}" if monitor.mode == MIN else f"{value:.4f}"


def band_words(detail: EpochDetail, monitor: Monitor) -> str:
    """Return `0.8712 (0.8605 – 0.8791)`: the mean, and the range of the epoch's versions unless both look the same."""
    mean, low, high = (measured_words(value, monitor) for value in (detail.mean, detail.min, detail.max))
    return mean if low == high else f"{mean} ({low} – {high})"


def epoch_words(goal: RunGoal, report: Report, detail: EpochDetail) -> str:
    """Return `epoch 3/20: accuracy 0.8712 (0.8605 – 0.8791), loss 0.41, in training 0.43, after 2 min 05 s`."""
    words = [f"{report.monitor.name} {band_words(detail, report.monitor)}", *_other_measures(report, detail.measures)]
    if detail.train_loss is not None:
        # The training loss comes right after that of validation, so that a gap between them is seen.
        place = 1 if report.monitor.name == LOSS else 2
        words.insert(place, f"in training {detail.train_loss:.4g}")
    return f"epoch {detail.epoch}/{goal.epochs}: {', '.join(words)}, after {duration(detail.wall_s)}"


def event_words(event: Event, report: Report | None = None, host: str = "") -> str | None:
    """Return a sentence about an event for displays, or None if the event is not shown as a line.

    Args:
        event: The event.
        report: The figures of the run up to it.
        host: The host that had the subtask, for events that name none.
    """
    match event:
        case RunStarted(True):
            return "resumed" if report is None else f"resumed after {plural(report.totals.applied, 'update')}"
        case EvaluatorDied():
            return f"the evaluator died ({event.reason}): training continues, and what is missing is measured later"
        case RolledBack():
            return rolled_back_words(event)
        case StoreRestored() | RowsRewritten() | FilesChecked():
            return mended_words(event)
        case WorkunitFailed() | UpdateRefused() | ResultRefused():
            return setback_words(event, host)
        case _:
            return None


def status_figures(goal: RunGoal, report: Report, now_s: float | None) -> dict[str, str]:
    """Return the figures that `vcdl status` shows: label → text.

    Args:
        goal: The limits at which the run ends.
        report: The run's report.
        now_s: Unix time; None if the run is not running.
    """
    epoch = epoch_at_work(goal, report)
    done = report.history.applied_by_epoch.get(epoch, 0)
    figures = {
        "epoch": f"{epoch}/{goal.epochs}, {done} of its {goal.shards} shards done",
        **measured_figures(goal, report),
        "subtasks": count_words(report),
        "staleness": staleness_words(report),
        "running for": duration(report.wall_s if now_s is None else report.history.wall_s_at(now_s)),
    }
    if report.totals.lost:
        figures["overwritten"] = lost_words(report)
    if report.totals.evaluator_death is not None:
        figures["not measured"] = unmeasured_words(report)
    if report.history.rollbacks:
        figures["rolled back"] = rollback_words(report)
    figures |= ((split, f"{words}, {model_words(goal, report)}") for split, words in final_words(report))
    if now_s is not None:
        figures["speed"] = speed_words(report, now_s)
        figures["time left"] = left_words(goal, report, now_s)
        if (money := money_words(goal, report, now_s)) is not None:
            figures["money"] = money
    return figures


def measured_figures(goal: RunGoal, report: Report) -> dict[str, str]:
    """Return label → text for the monitor, the losses of validation and training, and other metrics."""
    name = report.monitor.name
    is_short = len(name) <= _LABEL_WIDTH
    figures = {name if is_short else "monitor": f"{'' if is_short else f'{name} '}{score_words(goal, report)}"}
    if not report.epochs:
        return figures
    detail = report.epochs[-1]
    trained = None if detail.train_loss is None else f"{detail.train_loss:.4g}"
    # A run that is judged by its loss has that value in the line above.
    if name != LOSS:
        loss = f"{detail.measures.get(LOSS, math.nan):.4g} in validation"
        figures["loss"] = loss if trained is None else f"{loss}, {trained} in training"
    elif trained is not None:
        figures["train loss"] = trained
    # The loss has a label of its own above.
    further = [words for words in _other_measures(report, detail.measures) if not words.startswith(f"{LOSS} ")]
    if further:
        figures["metrics"] = ", ".join(further)
    return figures


def model_words(goal: RunGoal, report: Report) -> str:
    """Return which weights the run's model has, such as `the last, epoch 8`, and whether they are the best.

    The text is empty before the end. The model has the weights with which the job ended, which may be some updates into
    an epoch.
    """
    if report.stop is None:
        return ""
    ends = {epoch: one.event.version for epoch, one in report.history.closed.items()}
    epoch = min(1 + sum(version < report.stop.version for version in ends.values()), goal.epochs)
    best = report.best_epoch
    is_best = best is not None and ends.get(best.epoch) == report.stop.version
    return f"epoch {epoch}, the last and the best" if is_best else f"the last, epoch {epoch}"


def final_words(report: Report) -> list[tuple[str, str]]:
    """Return (split, `accuracy 0.95, loss 0.2 (10 samples)`) for each split on which the job's result was evaluated."""
    finals = ((split.removeprefix("final_"), report.final(split)) for split in FINAL_SPLITS)
    return [(split, _measures(report, evaluated)) for split, evaluated in finals if evaluated is not None]


def _measures(report: Report, evaluated: VersionEvaluated) -> str:
    monitor = report.monitor
    judged = f"{monitor.name} {measured_words(monitor.value(evaluated), monitor)}"
    return (
        ", ".join([judged, *_other_measures(report, evaluated.measures)]) + f" ({plural(evaluated.samples, 'sample')})"
    )


def _other_measures(report: Report, measures: Mapping[str, float]) -> list[str]:
    """Return a text `name value` for each metric except the monitored one, in the given order."""
    return [f"{name} {value:.4g}" for name, value in measures.items() if name != report.monitor.name]


def score_words(goal: RunGoal, report: Report) -> str:
    """Return the last epoch's mean with its band, the best mean, and the target."""
    epochs, best = report.epochs, report.best_epoch
    words = [
        f"{band_words(epochs[-1], report.monitor)} in epoch {epochs[-1].epoch}" if epochs else "no epoch measured yet"
    ]
    if best is not None:
        words.append(f"best {measured_words(best.mean, report.monitor)} in epoch {best.epoch}")
    if goal.target is not None:
        words.append(f"target {goal.target:g}")
    return ", ".join(words)


def speed_words(report: Report, now_s: float) -> str:
    """Return `1.02 updates/s, 1 020 samples/s`, or the reason why there is no figure yet."""
    rates = report.rates(now_s)
    if rates is None:
        return "not known before the second update"
    return f"{rates.updates_s:.2f} updates/s, {group_digits(rates.samples_s)} samples/s"


def staleness_words(report: Report) -> str:
    """Return `1.0 on average, 3 at most`."""
    if report.staleness_mean is None:
        return "–"
    return f"{report.staleness_mean:.1f} on average, {report.totals.staleness_max} at most"


def count_words(report: Report) -> str:
    """Return `137 done, 1 lost, 0 refused, 1 retried`."""
    return (
        f"{group_digits(report.totals.applied)} done, {report.totals.failed} lost, {report.totals.refused} refused, "
        f"{report.retried} retried"
    )


def unmeasured_words(report: Report) -> str:
    """Return `3 versions, from version 120 on: the evaluator died (killed by signal 9 …) and is started again`."""
    wanted = sorted(version for version, _ in report.history.wanted)
    since = f", from version {wanted[0]} on" if wanted else ""
    died = report.totals.evaluator_death
    why = "" if died is None else f": the evaluator died ({printable(died.reason)}) and is started again"
    return f"{plural(len(wanted), 'version')}{since}{why}"


def lost_words(report: Report) -> str:
    """Return `3 of 160 updates, 1.9 %: the store is eventual`."""
    applied = report.totals.applied
    percent = 100 * report.totals.lost / max(1, applied)
    return (
        f"{group_digits(report.totals.lost)} of {group_digits(applied)} updates, {percent:.1f} %: the store is eventual"
    )


def rollback_words(report: Report) -> str:
    """Return `2 times, 31 of 160 updates are dropped; the last time from version 90 to 60`."""
    rollbacks, applied = report.history.rollbacks, report.totals.applied
    last = rollbacks[-1]
    return (
        f"{plural(len(rollbacks), 'time')}, {group_digits(report.rolled_back_updates)} of {group_digits(applied)} "
        f"updates are dropped; the last time from version {last.version - 1} to {last.to}"
    )


def rolled_back_words(event: RolledBack) -> str:
    """Return `the weights had collapsed (0.1 at version 88, usual 0.93): back to version 60 without 29 updates`."""
    if event.host:
        return (
            f"{event.host} uploaded something else than the result of its training: "
            f"{plural(len(event.dropped), 'update')} of it since version {event.to} taken back"
        )
    return (
        f"the weights had collapsed ({event.measured:.4g} at version {event.collapsed}, usual {event.usual:.4g}): "
        f"back to version {event.to} without {plural(len(event.dropped), 'update')}"
    )


def mended_words(event: StoreRestored | RowsRewritten | FilesChecked) -> str:
    """Return a sentence about a restored store, rewritten journal rows, or files checked after a reboot."""
    if isinstance(event, RowsRewritten):
        return (
            f"the store is {plural(event.rows, 'update')} ahead of the journal, as when an older copy was put back: "
            "their rows are written again"
        )
    if isinstance(event, FilesChecked):
        found = f"removed as damaged: {event.damaged}" if event.damaged else "all are whole"
        return f"checked after a reboot: the store and {plural(event.files, 'file')} of weights; {found}"
    twice = f"; {plural(event.twice, 'update')} without a row in the journal may count twice" if event.twice else ""
    return (
        f"the store had lost its weights, or came back older: it is rebuilt as version {event.version}, with "
        f"{plural(event.folded_again, 'update')} folded in again{twice}"
    )


def left_words(goal: RunGoal, report: Report, now_s: float) -> str:
    """Return the time until all epochs are done, such as `about 12 min 40 s (11 min 30 s to 14 min 10 s)`."""
    left_s = seconds_left(goal, report, now_s)
    if left_s is None:
        return "not known yet"
    between = range_left(goal, report, now_s)
    words = f" ({duration(between[0])} to {duration(between[1])})" if between is not None else ""
    return f"about {duration(left_s)}{words}"


def money_words(goal: RunGoal, report: Report, now_s: float) -> str | None:
    """Return `1.23 $ so far, 0.40 $ to 0.52 $ more to the end`; None if no fleet is named."""
    if goal.costs is None:
        return None
    spent_usd, usd_per_h = goal.costs()
    return f"{spent_usd:.2f} $ so far, {more_words(usd_per_h, range_left(goal, report, now_s))}"


def more_words(usd_per_h: float, left_s: tuple[float, float] | None) -> str:
    """Return `0.40 $ to 0.52 $ more to the end`.

    Args:
        usd_per_h: What the hosts cost an hour.
        left_s: Range of the seconds left; None if it is unknown.
    """
    # Imported here: the planner needs NumPy, and the words are used by commands that must start fast.
    from vcdl.planner.time_left import money_to_end

    if left_s is None:
        return "the rest of the cost is not known yet"
    low_usd, high_usd = money_to_end(usd_per_h, left_s)
    return f"{low_usd:.2f} $ to {high_usd:.2f} $ more to the end"


def range_left(goal: RunGoal, report: Report, now_s: float) -> tuple[float, float] | None:
    """Return the 80 % range of the seconds left, or None if it is unknown or the run has a time limit."""
    if goal.wall_time_s is not None:
        return None
    from vcdl.planner.time_left import time_left

    between = time_left(max(0, goal.subtasks - report.subtasks_done), [one.wall_s for one in report.totals.recent])
    left_s = seconds_left(goal, report, now_s)
    # The range must contain the estimate that is shown next to it, which comes from other numbers.
    return None if between is None or left_s is None else (min(between[0], left_s), max(between[1], left_s))


def setback_words(event: WorkunitFailed | UpdateRefused | ResultRefused, host: str = "") -> str:
    """Return `shard 17 of epoch 3, attempt 1, on host-4: lost, the worker died (signal 9)`.

    `host` is the host to name if the event names none.
    """
    name = WorkunitName.parse(event.workunit)
    if isinstance(event, WorkunitFailed):
        what = f"lost, {event.reason}"
    else:
        what, host = f"refused, {event.refusal}: {event.detail}", event.host or host
    on = f", on {host}" if host else ""
    return f"shard {name.shard} of epoch {name.epoch}, attempt {name.attempt_in_turn + 1}{on}: {what}"
