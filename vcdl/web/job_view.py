"""Keep a job's figures in memory, so that a page only reads the events that were recorded since the last page."""

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
"""Newest journal rows in memory, for clients that follow a job's events; older rows are read from the journal."""
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
    """The figures of a job, which each call of `current` brings up to date from the journal.

    Several threads may use a view. `current` holds its lock, so that the figures do not change within the block; read
    them only there. A view never writes to the run, except that it stores folded states in the journal so that the next
    process need not read the whole journal.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.report = Report()
        self.hosts = HostHistory()
        self.stream = SubtaskStream()
        self.last_id = 0
        """Id of the last journal row that is included in the figures."""
        self.feed: deque[FeedLine] = deque(maxlen=_FEED)
        """Lines of the newest events, without the ends of epochs, oldest first."""
        self.recent: deque[Recorded] = deque(maxlen=_RECENT)
        """The newest rows of the journal, oldest first."""
        self._job: Job | None = None
        self._clock: Clock = SteadyClock().now_s
        self._folds: tuple[KeptState[Any], ...] = ()
        self._signature: Signature | None = None
        self._lock = threading.RLock()
        self.profile = ProfileReader(folder)

    @contextmanager
    def current(self) -> Iterator["JobView"]:
        """Bring the view up to date and yield it; it does not change within the block.

        The lock is held meanwhile, so other threads that need the view wait. The same thread may nest calls.

        Raises:
            RunFolderError, JobError, JournalError: The job cannot be read.
        """
        with self._lock:
            signature = signature_of(self.folder)
            if signature != self._signature:
                # The first entry is the job file's: `vcdl set` has changed it.
                if self._signature is None or signature[0] != self._signature[0]:
                    self._job = None  # read again only when needed: reading it takes longer than looking
                self._look()
                # Keep the signature of the files as they were before they were read: if they were written meanwhile,
                # the next call notices and reads them again. Set it last: if reading raises, it is repeated.
                self._signature = signature
            yield self

    @property
    def job(self) -> Job:
        """The settings with which the run trains, `vcdl set` included.

        Raises:
            JobError: The job file is damaged.
        """
        if self._job is None:
            self._job = read_frozen(self.folder)
        return self._job

    @property
    def standing(self) -> Standing:
        """The state, the figures and the time left of the run, as of now.

        Raises:
            RunFolderError, JobError, JournalError: The run cannot be read.
        """
        return Standing.of(self.folder, self.job, self.report, self._clock)

    def row(self) -> JobRow:
        """Return the job's row in the list of jobs.

        Raises:
            RunFolderError, JobError, JournalError: The run cannot be read.
        """
        return JobRow.of(self.standing, self.hosts.bringing)

    def rows_after(self, after: int, limit: int) -> list[Recorded]:
        """Return at most `limit` journal rows with ids above `after`, in order.

        Recent rows come from memory, older ones from the journal.

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
            # Begin anew at the first call, and if the journal is shorter than before: an older copy was restored.
            if not self._folds or journal.last_id() < self.last_id:
                # Continue from the state that is stored in the journal, so that a long run's events are not all read.
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
                    fold.follow(recorded)  # ignores a row that it has already included
                if line := _feed_line(recorded, self.stream):
                    self.feed.append(line)
                self.stream.follow(recorded)
                self.recent.append(recorded)
                self.last_id = recorded.id
            # Drop each host's unverified uploads: only the coordinator needs them for its verdicts, and they would fill
            # the memory of a view.
            for host in self.hosts.hosts.values():
                host.unverified.clear()


def _feed_line(recorded: Recorded, before: SubtaskStream) -> FeedLine | None:
    """Return the feed line of an event, or None for a kind of event that the feed does not show.

    Args:
        recorded: The event.
        before: The stream without this event: it still knows which host had the lost subtask.
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
    """The profile of a run, computed by a thread in the background, because a long journal takes a minute at first.

    `sentence` starts the thread; `stages` and `machines` are results of its last completed computation.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._profile: KeptState[RunProfile] | None = None
        self._due_s = 0.0
        self._words = ""
        self.stages: dict[str, tuple[int, float]] = {}
        """Stage → number of applied subtasks, and the seconds that they spent in this stage."""
        self.machines: dict[str, tuple[int, int, str]] = {}
        """Host → bytes that it downloaded, bytes that it uploaded, and a description of its machine."""
        self._busy = threading.Lock()

    def sentence(self, job: Job) -> str:
        """Return the newest known advice of `vcdl profile`, and have the profile updated in the background.

        Args:
            job: The settings of the run.

        Returns:
            The sentence, or "" if there is none yet: the first call only starts the computation.
        """
        # Do not wait for the thread that reads the profile: until it ends, callers get the previous sentence.
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
    """Return the size and modification time of each of a run's files, so that a write to one changes the result.

    Job file, journal, its write-ahead log, summary and note are included, in this order. An empty file counts as
    missing, because SQLite creates an empty log when the journal is only read: that would look like a write.
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
