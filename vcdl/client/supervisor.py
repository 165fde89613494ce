"""The interface between a training and its supervisor: a terminal, the local grid, or BOINC."""

from enum import Enum
from typing import Protocol


class Request(Enum):
    """A request of the supervisor to the workunit that is being trained."""

    GO = "go"
    PAUSE = "pause"
    """Wait, without using the processor, for another request."""
    QUIT = "quit"
    """Leave a checkpoint and stop; the workunit is resumed later, maybe by another process."""
    FINISH = "finish"
    """Stop and upload the weights trained so far, with the fraction of the workunit that they cover."""


class Supervisor(Protocol):
    """The three calls of the training to its supervisor.

    They must return quickly, and all come from the thread that trains.
    """

    def request(self) -> Request:
        """Return the current request. It is called before each batch, and ten times a second while paused."""
        ...

    def progress(self, fraction: float, samples: int) -> None:
        """Receive the trained fraction of the workunit, 0 to 1, and the samples so far; at most four times a second."""
        ...

    def checkpoint_made(self) -> None:
        """Note that a checkpoint is on the disk: from now on a kill loses only the training after it."""
        ...
