"""What is shown of a simulated run while it goes on."""

from collections.abc import Sequence
from typing import IO

from vcdl.events import Recorded, UpdateRefused, WorkunitFailed
from vcdl.report.display import PlainLines
from vcdl.report.progress import Goal


class EpochLines(PlainLines):
    """A line for each phase and each epoch; losses and refusals are what the fleet was made for, and only counted."""

    def __init__(self, goal: Goal, stream: IO[str]) -> None:
        super().__init__(goal, stream, clock=lambda: 0.0)  # a virtual run begins at 0

    def events(self, events: Sequence[Recorded]) -> None:
        super().events([r for r in events if not isinstance(r.event, WorkunitFailed | UpdateRefused)])
