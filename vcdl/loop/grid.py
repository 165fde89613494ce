"""The contract between the loop and what runs subtasks: `Grid` hands workunits out, `Results` brings outcomes back.

Delivery is at least once: this process or the next one hands a result out again until `done` was called for it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.journal.events import WorkunitSent
from vcdl.journal.observer import RunningTask
from vcdl.run.staging import Staged, Uploaded


@dataclass(frozen=True)
class GaveUp:
    """The grid will not bring an update of this workunit."""

    workunit: str
    reason: str
    cancelled: bool = False
    """The server took the workunit back: that is no failure of the subtask."""


Outcome = Uploaded | GaveUp


class Results(ABC):
    """The source of results: a grid, a folder that several servers share, the database of a BOINC project."""

    @abstractmethod
    def claim(self) -> Sequence[Outcome]:
        """Claim outcomes that are not `done` yet, for this caller alone, in the order they came. Raises GridError.

        It repeats: until `done`, each call brings the same outcomes again, to this caller or, when that has ended, to
        another. It may never bring one to two callers at once.
        """

    @abstractmethod
    def done(self, workunit: str, version: int | None = None) -> None:
        """Forget an outcome and its files: store and journal have it. `version`: the one that the upload made."""


class Grid(ABC):
    """Runs workunits on unreliable clients."""

    @abstractmethod
    def submit(self, staged: Sequence[Staged]) -> None:
        """Hand workunits over; one the grid has already is left as it is. Raises GridError."""

    @abstractmethod
    def has(self, workunit: str) -> bool:
        """Return whether the workunit was submitted and is not done."""

    @abstractmethod
    def sent(self) -> list[WorkunitSent]:
        """Return the workunits that clients started since the last call."""

    @abstractmethod
    def cancel(self, workunits: Collection[str]) -> None:
        """Withdraw workunits whose results are no longer wanted; a result may still come."""

    def refresh(self) -> None:
        """Look anew at what clients ask for, and do what has become due meanwhile. Raises GridError."""
        return

    @abstractmethod
    def open_wanted(self) -> int:
        """Return how many workunits to keep unsent or running, so that no client waits. It changes nothing."""

    def slots(self) -> int | None:
        """Return what `open_wanted` gives while nothing is lost, or None if a job may leave no slot free."""
        return None

    def replicate_late(self, *, queue_empty: bool) -> None:
        """Have further clients train late subtasks; `queue_empty`: nothing else is to train. Raises GridError."""
        return

    def publish(self, version: int, params: Path) -> None:
        """Offer the newest weights to clients that begin with a workunit from now on. Raises GridError."""
        return

    def discard_params(self, keep: Collection[int]) -> None:
        """Forget weights of versions that no open workunit starts from, but for `keep`. Raises GridError."""
        return

    def pause(self) -> None:
        """Take back what is out, as the run is paused; it comes again when it is resumed. Raises GridError."""
        return


class DrivenGrid(Grid, Results):
    """A grid that the run's own process drives (vcdl.local.run.run_over): all of it is used by one thread."""

    shortage: Exception | None = None
    """Why nothing is handed out now; None: it is."""

    def start(self) -> None:
        """Adopt what an earlier process left, while the data is cut. Raises GridError."""
        return

    def wait(self, timeout_s: float) -> None:
        """Wait for something to happen, at most `timeout_s`, and act on it. Raises GridError."""
        time.sleep(timeout_s)

    @property
    def waiting(self) -> int:
        """Workunits that no client has started."""
        return 0

    def running(self) -> Sequence[RunningTask]:
        """Return the subtasks that are being trained, for the display."""
        return ()

    def missing_uploads(self, workunits: Collection[str]) -> set[str]:
        """Return the workunits whose upload is no longer where parameter servers take it.

        It is in the journal, or it was deleted. A grid whose uploads are claimed by the run's own process has none.
        """
        return set()

    def lose(self, workunits: Collection[str]) -> None:
        """Give up workunits whose upload somebody deleted."""
        return

    def close(self) -> None:
        """End what the grid has started here."""
        return
