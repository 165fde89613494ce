"""The grid's record of one of its pilots."""

from contextlib import suppress
from dataclasses import dataclass, field

from vcdl.pool.mailboxes import Mailbox


@dataclass
class KnownPilot:
    """What the grid knows of one pilot: the tasks in its mailbox, and its last heartbeat."""

    name: str
    mailbox: Mailbox
    host: str
    """Name of the pilot's host in the journal."""
    heard_s: float
    """When its last heartbeat arrived, in seconds on the grid's clock."""
    since_s: float
    """When it started its current task, got one while it had none, or became idle; in seconds on the same clock."""
    tasks: list[str] = field(default_factory=list)
    """Names of the workunits in its mailbox, the one in training first."""
    training: str = ""
    """The workunit that it trains, or an empty string if it trains none."""
    begun: set[str] = field(default_factory=set)
    """Names of its tasks whose start is recorded in the journal."""
    fraction: float = 0.0
    """How much of the current task is trained, from 0 to 1."""

    @property
    def has_next(self) -> bool:
        """Whether its mailbox contains a task that it has not started."""
        return bool(self.tasks) and self.tasks[-1] != self.training

    def take_back(self) -> str:
        """Withdraw the unstarted task from its mailbox; `tasks` stays as it is.

        Returns:
            The task's workunit, or "" if there is none, or the pilot has started it in the same moment.
        """
        with suppress(FileNotFoundError), self.mailbox.held() as mailbox:
            return mailbox.take_back()
        return ""
