"""What a client knows of whoever runs it: a terminal, the local grid, BOINC. Nothing else of the host reaches the training."""

from enum import Enum
from typing import Protocol


class Request(Enum):
    """What the host wants done with the workunit that is being trained."""

    GO = "go"
    PAUSE = "pause"
    """Wait, without using the processor, until the host says something else."""
    QUIT = "quit"
    """Leave a checkpoint and stop; the workunit is continued later, maybe by another process."""
    FINISH = "finish"
    """Stop and upload what has been trained so far, with the fraction that it is."""


class Host(Protocol):
    """Three calls, all made from the thread that trains, all of them quick."""

    def request(self) -> Request:
        """Asked before each batch, and ten times a second while paused."""
        ...

    def progress(self, fraction: float, samples: int) -> None:
        """`fraction` of the workunit, 0 to 1, and the samples trained so far; at most four times a second."""
        ...

    def checkpoint_made(self) -> None:
        """From now on a kill loses only what is trained after this moment."""
        ...
