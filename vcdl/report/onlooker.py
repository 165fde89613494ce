"""Hooks of a run: what may be shown or counted while it goes on. They do nothing by default."""

from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.events import Recorded


@dataclass(frozen=True)
class RunningTask:
    """A subtask that a client works on now."""

    workunit: str
    host: str
    fraction: float
    since_s: float
    """Unix time."""


class Onlooker:
    """Override what you want to see; an exception raised here never stops the run."""

    def phase(self, text: str) -> None:
        """The run does something that the user waits for ("cutting the data into 50 shards")."""

    def events(self, events: Sequence[Recorded]) -> None:
        """New rows of the journal, in order; at the start of a resumed run, all earlier ones."""

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        """What runs now and how many subtasks wait for a client; several times a second."""
