"""The grid's record of one of its pilots, and what the grid does with the pilot's mailbox."""

from contextlib import suppress
from dataclasses import dataclass, field

from vcdl.pool.mailboxes import Mailbox
from vcdl.pool.messages import Assignment


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
    started: set[str] = field(default_factory=set)
    """Names of its tasks whose start is recorded in the journal."""
    fraction: float = 0.0
    """How much of the current task is trained, from 0 to 1."""

    @property
    def has_next(self) -> bool:
        """Whether its mailbox contains a task that it has not started."""
        return bool(self.tasks) and self.tasks[-1] != self.training

    def read_tasks(self) -> None:
        """Set `tasks` to those in its mailbox, including those whose results it has delivered."""
        with suppress(FileNotFoundError), self.mailbox.held() as mailbox:
            self.tasks = mailbox.tasks()
            self.tasks += [path.stem for path in mailbox.endings() if path.stem not in self.tasks]

    def give(self, task: Assignment, now_s: float) -> bool:
        """Put a task into its mailbox, and return whether the mailbox was still there; if not, the lease will expire.

        Args:
            task: The task, which becomes the last of `tasks`.
            now_s: The present time by the grid's clock.
        """
        try:
            with self.mailbox.held() as mailbox:
                mailbox.give(task)
        except FileNotFoundError:
            return False
        if not self.tasks:
            self.since_s = now_s
        self.tasks.append(task.workunit)
        return True

    def ask_to_drop(self, workunit: str) -> None:
        """Ask it to drop a task that it has started; `tasks` stays as it is."""
        with suppress(FileNotFoundError), self.mailbox.held() as mailbox:
            mailbox.do_without(workunit)

    def take_back(self) -> str:
        """Withdraw the unstarted task from its mailbox; `tasks` stays as it is.

        Returns:
            The task's workunit, or "" if there is none, or the pilot has started it in the same moment.
        """
        with suppress(FileNotFoundError), self.mailbox.held() as mailbox:
            return mailbox.take_back()
        return ""
