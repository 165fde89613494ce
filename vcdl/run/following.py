"""A run's journal followed from outside, for whoever looks on: `vcdl watch`, and a program that waits."""

import time

from vcdl.journal.events import WorkunitSent
from vcdl.journal.kept_state import kept_history
from vcdl.journal.packing import copy_of
from vcdl.report.measures import Report
from vcdl.report.observer import RunningTask, RunObserver
from vcdl.run.finding import journal_of
from vcdl.run.folder import RunFolder


class Following:
    """Hands an observer what is new in a run's journal, at each look."""

    def __init__(self, folder: RunFolder, observer: RunObserver) -> None:
        self._folder = folder
        self._observer = observer
        self._last_id = 0
        self._hosts: dict[str, str] = {}
        self.report = Report()
        """The figures of the run, up to the last look."""

    def look(self) -> None:
        """Read what is new. Raises JournalError."""
        with journal_of(self._folder) as journal:
            if journal is not None and not self._last_id:
                kept = kept_history(journal)
                self.report, self._last_id = Report(kept.read()), kept.last_id
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
        """Tell the observer what clients work on, as far as the journal knows: how far each is only the grid does."""
        history, now_s = self.report.history, time.monotonic()
        self._hosts = {workunit: host for workunit, host in self._hosts.items() if workunit in history.at_work}
        running = [
            RunningTask(workunit, self._hosts.get(workunit, "a client"), 0.0, now_s)
            for workunit in sorted(history.at_work)
        ]
        self._observer.tasks(running, len(history.open) - len(running))
