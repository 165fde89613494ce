"""Hooks of a run, for displays and counters. They do nothing by default."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.journal.events import Recorded
from vcdl.journal.history import JobHistory


@dataclass(frozen=True)
class RunningTask:
    """A subtask that a client works on now."""

    workunit: str
    host: str
    fraction: float
    since_s: float
    """The time at which it began, by the monotonic clock."""


class RunObserver:
    """Override what you want to see; what runs calls it through a Shielded."""

    def phase(self, text: str) -> None:
        """Report a phase that the user waits for, such as "cutting the data into 50 shards"."""

    def waiting_for(self, why: str | None) -> None:
        """Report that the run waits for a resource, and why; None: it continues. May be called repeatedly."""

    def begins(self, history: JobHistory) -> None:
        """Learn what the job was like before the first of `events`; the observer may keep the history."""

    def events(self, events: Sequence[Recorded]) -> None:
        """New rows of the journal, in order; those of a resumed run that are older are in `begins`."""

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        """Learn which tasks run and how many subtasks wait for a client; several times a second."""


class ShieldedObserver(RunObserver):
    """Passes calls to an observer, and none of its exceptions back: a failing display never loses an update."""

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
