"""A run's journal followed from outside, for whoever looks on: `vcdl watch`, and a program that waits."""

from vcdl.journal.kept_state import kept_history
from vcdl.journal.packing import copy_of
from vcdl.report.measures import Report
from vcdl.report.observer import RunObserver
from vcdl.run.finding import journal_of
from vcdl.run.folder import RunFolder


class Following:
    """Hands an observer what is new in a run's journal, at each look."""

    def __init__(self, folder: RunFolder, observer: RunObserver) -> None:
        self._folder = folder
        self._observer = observer
        self._last_id = 0
        self.report = Report()
        """The figures of the run, up to the last look."""

    def look(self) -> None:
        """Read what is new. Raises JournalError."""
        with journal_of(self._folder) as journal:
            if journal is not None and not self._last_id:
                kept = kept_history(journal)
                self.report, self._last_id = Report(kept.now()), kept.last_id
                self._observer.begins(copy_of(self.report.history))
            new = [] if journal is None else journal.read(self._last_id)
        for recorded in new:
            self.report.follow(recorded)
            self._last_id = recorded.id
        self._observer.events(new)
