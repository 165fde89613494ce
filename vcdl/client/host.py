"""All a client knows of the machine that runs it: it reports progress, and it is asked to go on, pause, quit or finish."""

from enum import Enum
from typing import Protocol


class Request(Enum):
    """What the host wants of the client; looked at between two batches."""

    GO = "go"
    PAUSE = "pause"
    """Wait, and use no processor."""
    QUIT = "quit"
    """Write a checkpoint and end; the workunit is gone on with later."""
    FINISH = "finish"
    """Upload what there is: the machine is about to go."""


class Host(Protocol):
    """The small protocol between the client and whatever started it."""

    def progress(self, fraction: float, samples: int) -> None:
        """How much of the workunit is done; called after every batch, the host decides what to pass on."""
        ...

    def checkpoint_made(self) -> None:
        """The work so far survives a kill from now on."""
        ...

    def request(self) -> Request:
        """What the host wants now."""
        ...

    def wait(self) -> None:
        """Sleep until the request may have changed."""
        ...
