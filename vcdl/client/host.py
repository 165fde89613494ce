"""The interface between a training and its host (a terminal, the local grid, BOINC); nothing else of the host
reaches it.
"""

from enum import Enum
from typing import Protocol


class Request(Enum):
    """The host's wish for the workunit that is being trained."""

    GO = "go"
    PAUSE = "pause"
    """Wait, without using the processor, until the host wishes otherwise."""
    QUIT = "quit"
    """Leave a checkpoint and stop; the workunit is resumed later, maybe by another process."""
    FINISH = "finish"
    """Stop and upload the weights trained so far, with the fraction of the workunit that they cover."""


class Host(Protocol):
    """Three quick calls, all made by the thread that trains."""

    def request(self) -> Request:
        """The host's current wish; asked before each batch, and ten times a second while paused."""
        ...

    def progress(self, fraction: float, samples: int) -> None:
        """Take the trained fraction of the workunit, 0 to 1, and the samples so far; at most four times a second."""
        ...

    def checkpoint_made(self) -> None:
        """Learn that a kill from now on loses only later training."""
        ...
