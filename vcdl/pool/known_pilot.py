"""The grid's record of one of its pilots."""

from contextlib import suppress
from dataclasses import dataclass, field

from vcdl.pool.mailboxes import Mailbox


@dataclass
class KnownPilot:
    """A pilot with the workunits in its mailbox."""

    name: str
    mailbox: Mailbox
    host: str
    """The pilot's host in the journal."""
    heard_s: float
    since_s: float
    """The time at which it started its current task, or was given its first one."""
    tasks: list[str] = field(default_factory=list)
    """The workunits in its mailbox, the one in training first."""
    training: str = ""
    begun: set[str] = field(default_factory=set)
    """Tasks that the journal records as started."""
    fraction: float = 0.0

    @property
    def has_next(self) -> bool:
        """Whether its mailbox has a task that it has not started."""
        return bool(self.tasks) and self.tasks[-1] != self.training

    def take_back(self) -> str:
        """Withdraw its next task; return the workunit, or "" if there is none or the pilot was faster."""
        with suppress(FileNotFoundError), self.mailbox.held() as mailbox:
            return mailbox.take_back()
        return ""
