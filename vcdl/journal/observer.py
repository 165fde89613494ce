"""Hooks that a run calls, for displays and counters. They do nothing by default."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.journal.events import Recorded
from vcdl.journal.history import JobHistory


@dataclass(frozen=True)
class RunningTask:
    """A subtask that a client is training."""

    workunit: str
    host: str
    fraction: float
    since_s: float
    """The time at which it started, by the monotonic clock."""


class RunObserver:
    """Base class of observers: override the hooks that you need. Runs call it through a ShieldedObserver."""

    def phase(self, text: str) -> None:
        """Report that a phase begins that the user waits for, such as "cutting the data into 50 shards"."""

    def waiting_for(self, why: str | None) -> None:
        """Report that the run waits for a resource, or that it does not wait. May be called often with the same text.

        Args:
            why: What it waits for, as a text for the user, or None if it does not wait.
        """

    def begins(self, history: JobHistory) -> None:
        """Receive the job's history before the first call of `events`; the observer may keep it."""

    def events(self, events: Sequence[Recorded]) -> None:
        """Receive new events of the journal, in order. Events of earlier sessions are only in `begins`."""

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        """Receive the tasks that clients are training. Called several times a second.

        Args:
            running: The running tasks.
            waiting: Number of subtasks that wait for a client.
        """


class ShieldedObserver(RunObserver):
    """Passes calls to an observer and drops its exceptions, so that a failing display never loses an update."""

    def __init__(self, observer: RunObserver) -> None:
        self._observer = observer

    def phase(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self._observer.phase(text)

    def waiting_for(self, why: str | None) -> None:
        with contextlib.suppress(Exception):
            self._observer.waiting_for(why)

    def begins(self, history: JobHistory) -> None:
        with contextlib.suppress(Exception):
            self._observer.begins(history)

    def events(self, events: Sequence[Recorded]) -> None:
        if events:
            with contextlib.suppress(Exception):
                self._observer.events(events)

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        with contextlib.suppress(Exception):
            self._observer.tasks(running, waiting)
