"""Say what is wrong with a job, for its page and for alerts: why it stands still, and where subtasks were lost."""

import time
from collections import Counter
from contextlib import suppress

from vcdl.errors import GridError, printable
from vcdl.errors.refusal import Refusal
from vcdl.report.progress import setback_words
from vcdl.report.wording import ago, clock_time, plural
from vcdl.run.reading import RunState
from vcdl.trust.kept_hosts import ShownTrust
from vcdl.web.job_view import JobView

_MANY_HOSTS = 4
"""Refusals on at least this many hosts, and on half of all hosts, are taken for a fault of the job or its data."""
_STALLED_S = 1800.0
"""Seconds without an event after which a running job is reported as stalled."""


def troubles(view: JobView, state: RunState, is_public: bool) -> list[str]:
    """Return a sentence for each problem of a job, worst first.

    Args:
        view: The job.
        state: Its state.
        is_public: Return only that the job failed or stands still, without causes, which may name hosts and files.
    """
    totals, found = view.report.totals, []
    if state is RunState.FAILED:
        found.append("The job was given up: a shard failed every time it was tried.")
    if words := standstill(view, state, time.time()):
        found.append(f"{words.partition(': ')[0]}." if is_public else words)
    if is_public:
        return found
    if totals.evaluator_death is not None:
        reason = printable(totals.evaluator_death.reason)
        found.append(f"The evaluator died ({reason}): accuracy is measured later.")
    setbacks = totals.failed + totals.refused
    # Report setbacks only from a tenth of the subtasks on: some are always lost on volunteers' machines.
    if setbacks and (state is RunState.FAILED or setbacks >= 0.1 * (totals.applied + setbacks)):
        last = f" The last: {printable(setback_words(totals.last_setback))}." if totals.last_setback else ""
        found.append(f"{setbacks} of {totals.applied + setbacks} subtasks {_setbacks(view, setbacks)}.{last}")
    return found


def standstill(view: JobView, state: RunState, now_s: float) -> str:
    """Return why a job stands still and what to do, or "" if it makes progress, is paused or has ended.

    The text before the first ": " names no cause, and may be shown to visitors.
    """
    last_s = view.report.history.last_s
    if state is RunState.KILLED:
        return f"{_describe_inactivity(view)}: its process died. `Resume` continues, and no applied update is lost."
    if state is RunState.WAITING:
        return f"{_describe_inactivity(view)}: {_nobody_works(view)}"
    if state is RunState.RUNNING and last_s and view.folder.kind.has_wall_clock and now_s - last_s > _STALLED_S:
        return f"Nothing has happened since {clock_time(last_s)}, {ago(last_s, now_s)}: no host uploads results."
    return ""


def _describe_inactivity(view: JobView) -> str:
    last_s = view.report.history.last_s
    is_known = bool(last_s) and view.folder.kind.has_wall_clock
    return f"No host has worked on it since {clock_time(last_s)}, {ago(last_s)}" if is_known else "No host works on it"


def _nobody_works(view: JobView) -> str:
    """Explain why a waiting job of a BOINC project makes no progress, and which command to run or log to read."""
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.boinc.project.processes import standstills

    with suppress(GridError):
        # Do not use the database: a page must not wait for one that is unavailable.
        causes = standstills(BoincProject.at(view.folder.path.resolve().parents[2]))
        log = "the daemons run, but cannot continue with this job: `log_HOST/vcdl_work_generator.log` says why"
        return f"{'; '.join(causes) or log}."
    return (
        "start the project's daemons with `bin/start`; if they run, `log_HOST/vcdl_work_generator.log` says why they "
        "cannot continue with this job."
    )


def _setbacks(view: JobView, setbacks: int) -> str:
    """Describe the lost and refused subtasks: how many for which reason, and on which host or how many hosts."""
    refusals, by_host = Counter[str](), Counter[str]()
    for host in view.hosts.hosts.values():
        refusals.update(host.refused)
        by_host[host.name] = host.lost + host.refused.total()
    totals, named = view.report.totals, refusals.most_common(3)
    others = totals.refused - sum(count for _, count in named)
    causes = [f"{count} refused as {_refusal_words(refusal)}" for refusal, count in named]
    causes += [f"{others} {'others ' if named else ''}refused"] if others > 0 else []
    causes += [f"{totals.failed} lost"] if totals.failed else []
    return f"failed and are retrained: {', '.join(causes)}{_where(view, by_host, setbacks)}"


def _where(view: JobView, by_host: Counter[str], setbacks: int) -> str:
    (worst, most), *_ = by_host.most_common(1) or [("", 0)]
    # If there is only one host, naming it as the culprit would say nothing.
    if len(by_host) > 1 and 2 * most > setbacks:
        trust = ShownTrust.of(view.job, view.hosts, worst)
        return f", {most} of them on {printable(worst)}{f', which is {trust.state} now' if trust.is_out else ''}"
    where = f", on {plural(sum(count > 0 for count in by_host.values()), 'host')}" if most else ""
    refused_on = sum(host.refused.total() > 0 for host in view.hosts.hosts.values())
    if refused_on >= _MANY_HOSTS and 2 * refused_on >= len(by_host):
        where += f"; uploads of {refused_on} hosts were refused, so it is rather the job or its data than a host"
    return where


def _refusal_words(name: str) -> str:
    """Return the name of a refusal and its meaning; only the name if this version of VCDL does not know it."""
    meaning = next((f" ({known.words})" for known in Refusal if known == name), "")
    return f"{printable(name)}{meaning}"
