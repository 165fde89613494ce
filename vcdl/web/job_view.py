"""Follow a job's journal in memory, so that a page costs only the events since the last one."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vcdl.errors import VcdlError, printable
from vcdl.job import Job
from vcdl.journal.clock import SteadyClock
from vcdl.journal.events import Recorded, ResultRefused, UpdateRefused, WorkunitFailed
from vcdl.journal.journal import Clock
from vcdl.journal.kept_state import KeptState, kept_history
from vcdl.profile.advice import JobSettings, advise
from vcdl.profile.kept_profile import kept_profile
from vcdl.profile.stages import RunProfile
from vcdl.report.measures import Report
from vcdl.report.progress import event_words
from vcdl.report.subtask_stream import SubtaskStream
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import journal_of
from vcdl.run.standing import JobRow, Standing
from vcdl.trust.hosts import HostHistory
from vcdl.trust.kept_hosts import shown_hosts

_WINDOW = 6000
"""Newest journal rows from which pictures and feed are drawn: about five for each drawn subtask."""
_RECENT = 1000
"""Newest journal rows in memory for those who follow a job, so that it stays bounded."""
_FEED = 60
"""Sentences in memory of a job's feed; enough, because the page shows 25."""
_PROFILE_EVERY_S = 15.0
"""Seconds between two readings of the profile, which takes a while for a long journal."""

Signature = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class FeedLine:
    """A sentence of a job's feed."""

    time_s: float
    """Unix time."""
    words: str
    cause: str = ""
    """Outcome and reason of a setback; lines with the same cause are merged. Lines without a cause are not merged."""
    host: str = ""


class JobView:
    """The figures of a job, kept up to date.

    Several threads may use a view; `current` prevents changes meanwhile.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.report = Report()
        self.hosts = HostHistory()
        self.stream = SubtaskStream()
        self.last_id = 0
        """Number of the last journal row that is included in the figures."""
        self.feed: deque[FeedLine] = deque(maxlen=_FEED)
        """Sentences of the last events other than the ends of epochs, oldest first."""
        self.recent: deque[Recorded] = deque(maxlen=_RECENT)
        """The last rows of the journal."""
        self._job: Job | None = None
        self._clock: Clock = SteadyClock().now_s
        self._folds: tuple[KeptState[Any], ...] = ()
        self._signature: Signature | None = None
        self._lock = threading.RLock()
        self.profile = ProfileReader(folder)

    @contextmanager
    def current(self) -> Iterator["JobView"]:
        """Yield the view, up to date and unchanged within the block.

        Raises:
            RunFolderError, JobError, JournalError: The job cannot be read.
        """
        with self._lock:
            signature = signature_of(self.folder)
            if signature != self._signature:
                # The first entry is the job file's: `vcdl set` has changed it.
                if self._signature is None or signature[0] != self._signature[0]:
                    self._job = None  # reading it takes longer than looking
                self._look()
                # Set the signature from before the look only after it: a write in between changes the files again, and
                # the next call reads them again. If the look raises, the old signature stays and the look is repeated.
                self._signature = signature
            yield self

    @property
    def job(self) -> Job:
        """The job as the run follows it.

        Raises:
            JobError: The job file is damaged.
        """
        if self._job is None:
            self._job = read_frozen(self.folder)
        return self._job

    @property
    def standing(self) -> Standing:
        """The current standing of the run.

        Raises:
            RunFolderError, JobError, JournalError: The run cannot be read.
        """
        return Standing.of(self.folder, self.job, self.report, self._clock)

    def row(self) -> JobRow:
        """Return the job's row in the list.

        Raises:
            RunFolderError, JobError, JournalError: The run cannot be read.
        """
        return JobRow.of(self.standing, self.hosts.bringing)

    def rows_after(self, after: int, limit: int) -> list[Recorded]:
        """Return the rows after one, in order: from memory if they are recent, otherwise from the journal.

        Raises:
            JournalError: The journal cannot be read.
        """
        if after >= self.last_id:
            return []
        if self.recent and after >= self.recent[0].id - 1:
            return list(islice((one for one in self.recent if one.id > after), limit))
        with journal_of(self.folder) as journal:
            return [] if journal is None else list(islice(journal.stream(after, at_once=limit), limit))

    def _look(self) -> None:
        with journal_of(self.folder) as journal:
            if journal is None:
                return
            if not self._folds or journal.last_id() < self.last_id:  # the first look, or an older copy was restored
                # The figures continue from a state that is stored in the journal, so the first look at a long run reads
                # only new events.
                history, hosts = kept_history(journal), shown_hosts(journal)
                self.report, self.hosts = Report(history.advance(save=True)), hosts.advance()
                self._folds = (history, hosts)
                self.stream, self._clock = SubtaskStream(), journal.clock
                self.feed.clear()
                self.recent.clear()
                # Go back by a window: pictures and feed need the last events again, which the figures already contain
                # (`follow` skips those).
                self.last_id = max(0, history.last_id - _WINDOW)
            for recorded in journal.stream(self.last_id):
                for fold in self._folds:
                    fold.follow(recorded)  # which it does not twice
                if line := _feed_line(recorded, self.stream):
                    self.feed.append(line)
                self.stream.follow(recorded)
                self.recent.append(recorded)
                self.last_id = recorded.id
            # Unverified uploads of each host, which only the coordinator's verdicts need: they would fill the memory of
            # a view.
            for host in self.hosts.hosts.values():
                host.unverified.clear()


def _feed_line(recorded: Recorded, before: SubtaskStream) -> FeedLine | None:
    """Return the feed line of an event, or None.

    Args:
        recorded: The event.
        before: The stream up to the event, from which the host of a lost subtask is taken.
    """
    host = cause = ""
    match event := recorded.event:
        case UpdateRefused() | ResultRefused():
            host, cause = event.host or before.host_of(event.workunit), f"refused, {event.refusal}"
        case WorkunitFailed():
            host, cause = before.host_of(event.workunit), f"lost, {event.reason}"
    words = event_words(event, host=host)
    return None if words is None else FeedLine(recorded.time_s, printable(words), cause, printable(host))


class ProfileReader:
    """The profile of a run, computed in the background: a long journal takes a minute at first."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._profile: KeptState[RunProfile] | None = None
        self._due_s = 0.0
        self._words = ""
        self.stages: dict[str, tuple[int, float]] = {}
        """Stage → number of applied subtasks with that stage and their seconds in it, as of the last `sentence`."""
        self.machines: dict[str, tuple[int, int, str]] = {}
        """Host → bytes down and up, and a description of its machine, as of the last `sentence`."""
        self._busy = threading.Lock()

    def sentence(self, job: Job) -> str:
        """Return the recent sentence of `vcdl profile`; the first call only starts to compute it."""
        # Do not wait: while a thread reads the profile, callers get the last sentence.
        if time.monotonic() >= self._due_s and self._busy.acquire(blocking=False):
            threading.Thread(target=self._read, args=(job,), name="vcdl-profile", daemon=True).start()
        return self._words

    def _read(self, job: Job) -> None:
        try:
            with suppress(VcdlError), journal_of(self._folder) as journal:
                if journal is None:
                    return
                if self._profile is None:
                    self._profile = kept_profile(journal)
                    self._profile.advance(save=True)
                for recorded in journal.stream(self._profile.last_id):
                    self._profile.follow(recorded)
                advice = advise(self._profile.state, JobSettings.of(job))
                sums = self._profile.state.total()
                self.stages = {stage: (sums.subtasks, seconds) for stage, seconds in sums.seconds.items()}
                self.machines = {host: self._profile.state.machine(host) for host in self._profile.state.hosts}
                self._words = "" if advice is None else advice.words()
        finally:
            self._due_s = time.monotonic() + _PROFILE_EVERY_S
            self._busy.release()


def signature_of(folder: RunFolder) -> Signature:
    """Return sizes and modification times of a run's files, which change with every write.

    An empty file counts as missing, because SQLite creates an empty log when the journal is only read.
    """
    log = folder.journal_file.with_name(f"{folder.journal_file.name}-wal")
    files = (folder.job_file, folder.journal_file, log, folder.summary_file, folder.note_file)
    return tuple(map(_size_and_time, files))


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None
