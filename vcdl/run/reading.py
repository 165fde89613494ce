"""Read the state and the figures of a run on disk without disturbing the process that runs it."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import TypeVar

from vcdl.journal.clock import SteadyClock
from vcdl.journal.events import Event, WorkunitSent
from vcdl.journal.journal import Clock, Journal
from vcdl.journal.kept_state import kept_history
from vcdl.journal.observer import RunningTask, RunObserver
from vcdl.journal.packing import copy_of
from vcdl.journal.place import gone
from vcdl.report.measures import Report
from vcdl.report.movie import Movie, movie_of
from vcdl.run.folder import RunFolder

E = TypeVar("E", bound=Event)


class RunState(StrEnum):
    """The state of a run, as `vcdl status` shows it."""

    RUNNING = "running"
    PAUSED = "paused"
    """Stopped cleanly; `vcdl resume` continues it."""
    WAITING = "waiting"
    """Its daemons do not run, or cannot continue this job until the cause is fixed."""
    KILLED = "killed"
    """Its process died without recording a pause; `vcdl resume` continues from the last applied update."""
    FINISHED = "finished"
    """Its results are written."""
    FAILED = "failed"
    """Its results are written, but it ended because a shard kept failing; `vcdl resume` tries again."""


NOBODY_WORKS = frozenset({RunState.PAUSED, RunState.WAITING, RunState.KILLED})
"""States of an open run that no process advances."""


def state_of(folder: RunFolder, report: Report) -> RunState:
    """Return the state of a run.

    Raises:
        RunFolderError: The folder cannot be read.
    """
    if folder.running_pid is not None:
        return RunState.RUNNING
    if is_finished(folder):
        return RunState.FAILED if report.is_given_up else RunState.FINISHED
    if report.history.paused or folder.stop_request.exists():
        return RunState.PAUSED
    return RunState.WAITING if folder.kind.has_daemons else RunState.KILLED


def is_finished(folder: RunFolder) -> bool:
    """Return whether the run has ended and its results are written: summary.json is written last."""
    return folder.summary_file.is_file()


def read_report(folder: RunFolder) -> Report:
    """Return the report of a run up to its last event, whether or not it is running; empty without a journal.

    The journal is not changed; the computed state may be stored in a file next to it for the next reader.

    Raises:
        JournalError: The journal cannot be read.
    """
    with journal_of(folder) as journal:
        return Report() if journal is None else Report(kept_history(journal).advance(save=True))


def clock_of(folder: RunFolder) -> Clock:
    """Return the clock of a run's journal, a function that gives the Unix time now; without a journal, a new clock.

    Raises:
        JournalError: The journal cannot be read.
    """
    with journal_of(folder) as journal:
        return SteadyClock().now_s if journal is None else journal.clock


def read_movie(folder: RunFolder, name: str) -> Movie:
    """Return the movie (vcdl.report.movie) of a run's events so far, whether or not it is running.

    Args:
        folder: The run's folder.
        name: The job's name, or another text for the start of the title.

    Raises:
        RunFolderError, JournalError: The run cannot be read.
    """
    with journal_of(folder) as journal:
        return movie_of(() if journal is None else journal.stream(), name, folder.kind.has_workers)


@contextmanager
def journal_of(folder: RunFolder) -> Iterator[Journal | None]:
    """Open a run's journal for reading, and close it after the block; yield None while the run is being prepared.

    Raises:
        JournalError: The journal is gone or cannot be read.
    """
    if not folder.journal_file.is_file():
        # Preparation creates the journal first and this file last. So if the journal is missing now, somebody deleted
        # it.
        if folder.prepared_file.exists():
            raise gone(folder.journal_file)
        yield None
        return
    with closing(Journal.read_only(folder.journal_file)) as journal:
        yield journal


def events_of(folder: RunFolder, *kinds: type[E]) -> Iterator[E]:
    """Yield the events of the given kinds in a run's journal, oldest first; none while the run is being prepared.

    Raises:
        JournalError: The journal cannot be read.
    """
    with journal_of(folder) as journal:
        for recorded in () if journal is None else journal.stream(kinds=kinds):
            if isinstance(recorded.event, kinds):
                yield recorded.event


class RunFollower:
    """Reports the events of a run that another process drives to an observer; call `poll` repeatedly."""

    def __init__(self, folder: RunFolder, observer: RunObserver) -> None:
        self._folder = folder
        self._observer = observer
        self._last_id = 0
        self._hosts: dict[str, str] = {}
        self.report = Report()
        """The figures of the run, up to the last call of `poll`."""

    def poll(self) -> None:
        """Read the journal's new events, report them to the observer, and update `report`.

        The first call passes the events so far as a history.

        Raises:
            JournalError: The journal cannot be read.
        """
        with journal_of(self._folder) as journal:
            # The first call starts from the saved state, because an observer wants the past as one history and not as
            # thousands of events.
            if journal is not None and not self._last_id:
                kept = kept_history(journal)
                self.report, self._last_id = Report(kept.advance(save=True)), kept.last_id
                self._observer.begins(copy_of(self.report.history))
            new = [] if journal is None else journal.read(self._last_id)
        for recorded in new:
            self.report.follow(recorded)
            self._last_id = recorded.id
        for recorded in new:
            if isinstance(recorded.event, WorkunitSent):
                self._hosts[recorded.event.workunit] = recorded.event.host
        self._observer.events(new)

    def tell_tasks(self) -> None:
        """Report to the observer which subtasks clients are training, as far as the journal shows.

        Their progress is given as 0, because only the grid knows it.
        """
        history, now_s = self.report.history, time.monotonic()
        self._hosts = {workunit: host for workunit, host in self._hosts.items() if workunit in history.at_work}
        running = [
            RunningTask(workunit, self._hosts.get(workunit, "a client"), 0.0, now_s)
            for workunit in sorted(history.at_work)
        ]
        self._observer.tasks(running, len(history.open) - len(running))
