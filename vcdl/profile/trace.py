"""Write a run's journal as a trace in Chrome's JSON format, which Perfetto and chrome://tracing show as a time line.

In the trace, a host is a process with a thread for each subtask that it has at a time. Below a subtask are the stages
that its client reported. A client reports durations and no start times, so its stages are drawn such that the last one
ends when the upload arrives; the gap before the first one includes the time of the transfers. Applied updates and
evaluations are threads of the process `server`. Times are microseconds since the first event.

Format: "Trace Event Format", the JSON object form with complete events (`ph: X`).
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcdl.files.atomic import whole_file
from vcdl.journal.events import Recorded, UpdateApplied, VersionEvaluated
from vcdl.profile.stages import FOLD, OF_HOST, SERVER, stages_of
from vcdl.report.subtask_stream import Span, SubtaskStream, by_host, side_by_side

_SERVER = 0
"""The server's number among the processes, so that it is drawn first."""
_FOLDS, _EVALUATIONS = 0, 1
Slice = dict[str, Any]


def write_trace(events: Iterable[Recorded], file: Path) -> int:
    """Write the trace of a run.

    Args:
        events: The whole journal, in order.
        file: The file, which is written as a whole or not at all.

    Returns:
        The number of subtasks in it.

    Raises:
        RunFolderError: The file cannot be written.
    """
    trace = _Trace()
    for recorded in events:
        trace.follow(recorded)
    with whole_file(file) as temporary, temporary.open("w", encoding="utf-8") as opened:
        json.dump({"displayTimeUnit": "ms", "traceEvents": [*trace.slices()]}, opened, separators=(",", ":"))
    return len(trace.stream.ended)


@dataclass
class _Trace:
    """Collects the events of a run, and yields the trace's slices once all were passed to `follow`."""

    stream: SubtaskStream = field(default_factory=lambda: SubtaskStream(ended=deque()))
    began_s: float | None = None
    applied: dict[str, tuple[float, UpdateApplied]] = field(default_factory=dict)
    """Workunit → the Unix time of its application, and its journal event."""
    evaluated: list[tuple[float, VersionEvaluated]] = field(default_factory=list)

    def follow(self, recorded: Recorded) -> None:
        self.began_s = recorded.time_s if self.began_s is None else self.began_s
        self.stream.follow(recorded)
        if isinstance(event := recorded.event, UpdateApplied):
            self.applied[event.workunit] = recorded.time_s, event
        elif isinstance(event, VersionEvaluated):
            self.evaluated.append((recorded.time_s, event))

    def slices(self) -> Iterator[Slice]:
        yield _name("process_name", _SERVER, 0, "server")
        yield _name("thread_name", _SERVER, _FOLDS, "folds")
        yield _name("thread_name", _SERVER, _EVALUATIONS, "evaluations")
        for time_s, event in self.applied.values():
            facts = {"version": event.version, "staleness": event.staleness, "weight": event.weight}
            yield self._slice(event.workunit, _SERVER, _FOLDS, time_s - (event.fold_s or 0.0), time_s, facts)
        for time_s, one in self.evaluated:
            words = f"version {one.version} on {one.split}"
            yield self._slice(words, _SERVER, _EVALUATIONS, time_s - one.evaluation_s, time_s, one.measures)
        yield from self._of_hosts()

    def _of_hosts(self) -> Iterator[Slice]:
        for process, (host, spans) in enumerate(by_host(self.stream.ended).items(), 1):
            yield _name("process_name", process, 0, host)
            for span, lane in side_by_side(spans):
                yield from self._of_span(span, process, lane)

    def _of_span(self, span: Span, process: int, lane: int) -> Iterator[Slice]:
        yield self._slice(span.workunit, process, lane, span.begin_s, span.end_s, {"fate": span.fate.value})
        time_s, event = self.applied.get(span.workunit, (0.0, None))
        # Another attempt at the subtask was applied: the journal has no stages of this one.
        if event is None or time_s != span.end_s:
            return
        with_host_s = span.end_s - span.begin_s
        stages = stages_of(event, with_host_s, with_host_s)
        at_s = span.end_s - stages[FOLD] - stages[SERVER]
        # Place the stages backwards from the upload's arrival: the journal has their durations, not their start times.
        for stage in reversed(OF_HOST):
            if stages[stage] > 0:
                yield self._slice(stage, process, lane, at_s - stages[stage], at_s, {})
            at_s -= stages[stage]

    def _slice(self, name: str, process: int, thread: int, begin_s: float, end_s: float, facts: Any) -> Slice:
        began_s = self.began_s or 0.0
        times = {"ts": round((begin_s - began_s) * 1e6), "dur": max(0, round((end_s - begin_s) * 1e6))}
        finite = {key: value for key, value in facts.items() if value == value}  # JSON has no NaN
        return {"name": name, "ph": "X", "pid": process, "tid": thread, **times, "args": finite}


def _name(what: str, process: int, thread: int, name: str) -> Slice:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
