"""The contract between the loop and whatever runs subtasks.

Delivery is at least once: a result is handed out again, by this or by the next process, until `done` was called for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.events import WorkunitSent
from vcdl.workunit import Workunit


@dataclass(frozen=True)
class Staged:
    """A workunit with the files it needs, lying on the server."""

    workunit: Workunit
    model: Path
    params: Path
    shard: Path


@dataclass(frozen=True)
class Uploaded:
    """A client brought an update; nobody has looked into it yet."""

    workunit: str
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class GaveUp:
    """The grid will not bring an update of this workunit."""

    workunit: str
    reason: str
    cancelled: bool = False
    """We did not want it any more: that is no failure of the subtask."""


Outcome = Uploaded | GaveUp


class Results(ABC):
    """Where results come from: a grid, a folder that several servers share, the database of a BOINC project."""

    @abstractmethod
    def claim(self) -> Sequence[Outcome]:
        """What has come to an end and is not `done` yet, for this caller alone, in the order it came. Raises GridError."""

    @abstractmethod
    def done(self, workunit: str, version: int | None = None) -> None:
        """The outcome is in store and journal: forget it and its files; `version`: that the upload made, when it was applied."""


class Grid(ABC):
    """Runs workunits on clients nobody can rely on."""

    @abstractmethod
    def submit(self, staged: Sequence[Staged]) -> None:
        """Hand workunits over; one the grid has already is left as it is. Raises GridError."""

    @abstractmethod
    def has(self, workunit: str) -> bool:
        """Whether the workunit was submitted and is not done."""

    @abstractmethod
    def sent(self) -> list[WorkunitSent]:
        """Which workunits clients began with since the last call."""

    @abstractmethod
    def cancel(self, workunits: Collection[str]) -> None:
        """Their results are no longer wanted; one may still come."""

    @abstractmethod
    def open_wanted(self) -> int:
        """How many workunits should be unsent or running, so that no client waits."""

    def discard_params(self, keep: Collection[int]) -> None:
        """Forget the weights handed over for versions that no open workunit starts from, all but `keep`. Raises GridError."""
        return

    def clear(self, *, forget_on_clients: bool) -> None:
        """The job is over, or paused: leave nothing of it here, and with `forget_on_clients` nothing on the clients either. Raises GridError."""
        return
