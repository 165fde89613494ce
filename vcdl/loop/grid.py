"""The contract between the loop and its execution backend: `Grid` runs workunits, `Results` returns their outcomes.

Delivery is at least once: an outcome is returned again, by this process or the next one, until `done` was called for
it.
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
    """The outcome of a workunit for which the grid will return no upload."""

    workunit: str
    reason: str
    cancelled: bool = False
    """Whether the server withdrew the workunit, which is no failure of the subtask."""


Outcome = Uploaded | GaveUp


class Results(ABC):
    """A source of outcomes: a grid, a folder that several servers share, or the database of a BOINC project."""

    @abstractmethod
    def claim(self) -> Sequence[Outcome]:
        """Claim outcomes that are not `done` yet, for this caller alone, in order of arrival.

        Until `done`, each call returns an outcome again: to this caller, or to another one once the process of this one
        has ended. Implementations must never return an outcome to two callers at the same time.

        Raises:
            GridError: The outcomes cannot be read.
        """

    @abstractmethod
    def done(self, workunit: str, version: int | None = None) -> None:
        """Forget an outcome and delete its files. Call it only after the store and the journal have the outcome.

        Args:
            workunit: The name of the outcome's workunit.
            version: The version that its upload created, or None if it created none.
        """


class Grid(ABC):
    """Runs workunits on unreliable clients."""

    @abstractmethod
    def submit(self, staged: Sequence[Staged]) -> None:
        """Submit workunits; skip those that the grid already has.

        Raises:
            GridError: The grid refused one.
        """

    @abstractmethod
    def has(self, workunit: str) -> bool:
        """Return whether the grid knows a workunit: it was submitted, and `done` was not called for it."""

    @abstractmethod
    def sent(self) -> list[WorkunitSent]:
        """Return the events for workunits that clients started since the last call; each is returned once."""

    @abstractmethod
    def cancel(self, workunits: Collection[str]) -> None:
        """Cancel workunits whose results are no longer wanted; a result may still arrive."""

    def refresh(self) -> None:
        """Update the demand of clients, and do work of the grid that has become due.

        It is called in each step before the actions are decided, and after each round of actions.

        Raises:
            GridError: The grid cannot be reached.
        """
        return

    @abstractmethod
    def target_open_workunits(self) -> int:
        """Return how many workunits should be open (unsent or running), so that no client waits. No side effects."""

    def slots(self) -> int | None:
        """Return how many open workunits the grid would want if all its workers were there.

        During its ramp-up a job leaves a part of these free. None means that it uses all slots from the start.
        """
        return None

    def replicate_late(self, *, queue_empty: bool) -> None:
        """Give subtasks that take unusually long (vcdl.loop.lateness) to further clients, too.

        Args:
            queue_empty: Whether no other subtask waits for a client, so that more subtasks count as late.

        Raises:
            GridError: The grid cannot be reached.
        """
        return

    def publish(self, version: int, params: Path) -> None:
        """Offer the newest weights to clients, which may start from them instead of their workunit's base version.

        Args:
            version: Their version.
            params: Their file.

        Raises:
            GridError: The grid refused the file.
        """
        return

    def discard_params(self, keep: Collection[int]) -> None:
        """Remove the weights of versions that no open workunit starts from, except those in `keep`.

        Raises:
            GridError: The grid cannot remove them.
        """
        return

    def pause(self) -> None:
        """Withdraw running workunits for a pause of the run; they are submitted again when it is resumed.

        Raises:
            GridError: The grid cannot be reached.
        """
        return


class DrivenGrid(Grid, Results):
    """A grid that the run's own process drives (vcdl.local.run.run_over). All methods are called from one thread."""

    shortage: Exception | None = None
    """The reason why no workunit can be given to clients now, such as a full disk; otherwise None."""

    def start(self) -> None:
        """Adopt the workunits of an earlier process. It is called while the data is still being cut into shards.

        Raises:
            GridError: The grid cannot start.
        """
        return

    def wait(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for an event of the grid, and handle the event.

        Raises:
            GridError: The grid cannot continue.
        """
        time.sleep(timeout_s)

    @property
    def waiting(self) -> int:
        """Workunits that no client has started."""
        return 0

    def running(self) -> Sequence[RunningTask]:
        """Return the subtasks that are being trained, for the display."""
        return ()

    def missing_uploads(self, workunits: Collection[str]) -> set[str]:
        """Return those of the given workunits whose upload has left the folder from which parameter servers claim.

        Such an upload was applied and recorded, or it was deleted. If the run's own process claims uploads, none is
        returned.
        """
        return set()

    def lose(self, workunits: Collection[str]) -> None:
        """Give up workunits whose upload was deleted."""
        return

    def close(self) -> None:
        """Stop the processes that the grid has started on this machine."""
        return
