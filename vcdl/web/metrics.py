"""Export metrics for Prometheus, computed at a request and cached for some seconds.

Only open jobs have a `job` label, and, in `vcdl_job_state`, jobs that ended within a day. No metric has a label for a
host or a workunit: over the years those would be thousands of series.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from vcdl.errors import VcdlError
from vcdl.files.version import __version__
from vcdl.journal.events import StopReason
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunState
from vcdl.web.catalogue import JobCatalogue
from vcdl.web.job_view import JobView
from vcdl.wire.task import ACCURACY, LOSS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CACHE_S = 10.0
"""Seconds for which metrics are cached, so that several Prometheus servers cost no more than one."""
_MOST_JOBS = 200
"""Most open jobs with metrics of their own, which limits the size of the answer; further jobs are not counted."""
_ENDED_S = 86400.0
"""Seconds for which an ended job still has a state: long enough to be noticed, and then an alert about it ends."""
_UNREADABLE = "unreadable"


class Metrics:
    """Renders the metrics of all jobs and of the service's process, at most once in `_CACHE_S` seconds."""

    def __init__(self, catalogue: JobCatalogue) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(catalogue))
        # Use a separate registry: the library's default one also has metrics of Python's garbage collector.
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()
        self._text = b""
        self._due_s = 0.0

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, at most ten seconds old.

        Raises:
            RunFolderError: The folder of runs cannot be read.
        """
        with self._lock:
            if time.monotonic() >= self._due_s:
                self._text = generate_latest(self._registry)
                self._due_s = time.monotonic() + _CACHE_S
            return self._text


class _Collector:
    def __init__(self, catalogue: JobCatalogue) -> None:
        self._catalogue = catalogue
        self._over: dict[str, tuple[float, RunState]] = {}
        """Name of a finished job → when its summary was written, and how it ended."""

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("vcdl_build", "The version of the service.", {"version": __version__})
        listed = self._catalogue.list_jobs()
        open_jobs = [name for is_over, name in listed if not is_over][:_MOST_JOBS]
        states: Counter[str] = Counter()
        families = _Families()
        for name in (name for is_over, name in listed if is_over):
            with suppress(OSError, ValueError):  # it was resumed meanwhile: the next request counts it as open
                ended_s, end = self._end_of(name)
                states[end.value] += 1
                if time.time() - ended_s < _ENDED_S:
                    families.state(name, end.value)
        for name in open_jobs:
            try:
                with self._catalogue.view(name).current() as view:
                    state = view.standing.state
                    families.add(view)
                states[state.value] += 1
                families.state(name, state.value)
            except VcdlError:
                states[_UNREADABLE] += 1
                families.state(name, _UNREADABLE)
        jobs = GaugeMetricFamily("vcdl_jobs", "Jobs by their state.", labels=["state"])
        for word, count in sorted(states.items()):
            jobs.add_metric([word], count)
        yield jobs
        yield from families.by_name.values()

    def _end_of(self, name: str) -> tuple[float, RunState]:
        """Return the Unix time at which a finished job ended, and the state in which it ended.

        A summary is read again only if its modification time has changed, because there may be thousands.

        Raises:
            OSError, ValueError: The summary cannot be read.
        """
        file = RunFolder(self._catalogue.runs / name).summary_file
        ended_s, known = file.stat().st_mtime, self._over.get(name)
        if known is None or known[0] != ended_s:
            is_given_up = json.loads(file.read_bytes()).get("stop_reason") == StopReason.SUBTASK_FAILED
            known = self._over[name] = ended_s, RunState.FAILED if is_given_up else RunState.FINISHED
        return known


class _Families:
    """Collects the metrics that have a `job` label, as one family per metric with a sample for each job."""

    def __init__(self) -> None:
        self.by_name: dict[str, Metric] = {}
        """Name of a metric → its samples of all jobs."""

    def state(self, job: str, state: str) -> None:
        """Add the state of one job."""
        self._gauge("vcdl_job_state", "A job's state: 1 for the one that it is in.", {"job": job, "state": state}, 1)

    def add(self, view: JobView) -> None:
        """Add the metrics of one job."""
        job, standing, report = view.folder.path.name, view.standing, view.report
        totals, row, settings = report.totals, view.row(), view.job
        kind = {
            "job": job,
            "rule": settings.update.rule,
            "store": (settings.store.url or "file").partition(":")[0],
            "grid": view.folder.kind.name,
        }
        self._gauge("vcdl_job_info", "A job.", kind, 1)
        best = report.epochs[-1].measures if report.epochs else {}
        last_s = report.history.last_s if view.folder.kind.has_wall_clock else 0.0
        for name, what, value in (
            ("epoch", "The epoch that it is in.", row.epoch),
            ("epochs_planned", "The epochs that it is to train.", row.epochs),
            ("progress_ratio", "The share of its subtasks that is done.",
             report.subtasks_done / max(1, standing.goal.subtasks)),
            ("eta_seconds", "Seconds until its end.", standing.seconds_left),
            ("validation_accuracy_ratio", "Its accuracy in the last measured epoch.", best.get(ACCURACY)),
            ("validation_loss", "Its loss in the last measured epoch.", best.get(LOSS)),
            ("hosts_active", "Hosts that have a subtask now.", view.stream.hosts_at_work),
            ("uploads_waiting", "Uploads that wait for a parameter server.", len(view.folder.waiting_uploads())),
            ("last_event_timestamp_seconds", "Unix time of its journal's last row.", last_s or None),
        ):  # fmt: skip
            self._gauge(f"vcdl_job_{name}", what, {"job": job}, value)
        at_work = len(report.history.at_work)
        workunits = {"in_progress": at_work, "waiting": len(report.history.open) - at_work}
        for state, count in workunits.items():
            self._gauge("vcdl_workunits", "Open workunits.", {"job": job, "state": state}, count)
        for name, what, number in (
            ("vcdl_workunits_created", "Workunits that were created.", totals.created),
            ("vcdl_workunits_failed", "Workunits whose client failed or was lost.", totals.failed),
            ("vcdl_updates_applied", "Uploads that were folded in.", totals.applied),
            ("vcdl_updates_superseded", "Uploads that came too late.", totals.superseded),
            ("vcdl_rollbacks", "Times that it went back to good weights.", len(report.history.rollbacks)),
            ("vcdl_samples_trained", "Samples that were trained.", totals.samples_trained),
            ("vcdl_received_bytes", "Bytes of uploads.", totals.bytes_up),
            ("vcdl_sent_bytes", "Bytes of downloads.", totals.bytes_down),
        ):
            self._counter(name, what, {"job": job}, number)
        refusals: Counter[str] = Counter()
        for host in view.hosts.hosts.values():
            refusals.update(host.refused)
        for refusal, count in sorted(refusals.items()):
            self._counter("vcdl_updates_refused", "Uploads that were refused.", {"job": job, "refusal": refusal}, count)
        self._summary("vcdl_update_staleness_versions", "Staleness of updates.", {"job": job}, totals.applied,
                      totals.staleness_sum)  # fmt: skip
        view.profile.sentence(settings)  # has the stages updated in the background, for a later request
        for stage, (count, seconds) in view.profile.stages.items():
            self._summary("vcdl_subtask_stage_seconds", "Seconds of subtasks by stage.",
                          {"job": job, "stage": stage}, count, seconds)  # fmt: skip

    def _gauge(self, name: str, what: str, labels: dict[str, str], value: float | None) -> None:
        if value is not None:
            self._add(GaugeMetricFamily, name, what, labels, {"": value})

    def _counter(self, name: str, what: str, labels: dict[str, str], value: float) -> None:
        self._add(CounterMetricFamily, name, what, labels, {"_total": value})

    def _summary(self, name: str, what: str, labels: dict[str, str], count: int, total: float) -> None:
        self._add(SummaryMetricFamily, name, what, labels, {"_count": count, "_sum": total})

    def _add(self, kind: Any, name: str, what: str, labels: dict[str, str], samples: dict[str, float]) -> None:
        """Add samples of one job to a metric.

        Args:
            kind: The class of the metric's family.
            name: The metric.
            what: Its help text.
            labels: The labels of the samples.
            samples: Ending that is appended to the metric's name → value.
        """
        # Keep one family for all jobs, because the format allows each name and its help only once.
        family = self.by_name.setdefault(name, kind(name, what, labels=list(labels)))
        for ending, value in samples.items():
            family.add_sample(name + ending, labels, value)
