"""What the user sees while a run goes on: a live display on a terminal, plain lines anywhere else.

Both are onlookers: they fold the journal's events into a Report and show its figures. Nothing they do can change a run.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from vcdl.events import Recorded, RunStarted, UpdateRefused, WorkunitFailed
from vcdl.onlooker import Onlooker, RunningTask
from vcdl.progress import Goal, epoch_words, setback_words, speed_words
from vcdl.report import Report
from vcdl.wording import plural, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_REFRESHES_S = 4
"""Redraws a second."""
_TASKS_SHOWN = 8


@contextmanager
def display(goal: Goal, stream: IO[str]) -> Iterator[Onlooker]:
    """Show a run on `stream` until the context is left."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal:
        yield PlainLines(goal, stream)
        return
    from rich.live import Live

    onlooker = LiveDisplay(goal, console)
    live = Live(console=console, get_renderable=onlooker.render, refresh_per_second=_REFRESHES_S, transient=True)
    with live:
        yield onlooker


class PlainLines(Onlooker):
    """A line for each phase, each epoch and each setback; no control characters."""

    def __init__(self, goal: Goal, stream: IO[str], clock: "Clock" = time.time) -> None:
        self._goal = goal
        self._stream = stream
        self._clock = clock
        self._began_s = clock()
        self._report = Report()
        self._epochs_told = 0

    def phase(self, text: str) -> None:
        self._say(text)

    def events(self, events: Sequence[Recorded]) -> None:
        for recorded in events:
            self._report.fold(recorded)
            earlier = recorded.time_s < self._began_s
            match recorded.event:
                case RunStarted(resumed=True) if not earlier:
                    self._epochs_told = len(self._report.epochs)
                    self._say(
                        f"going on after {plural(len(self._report.updates), 'update')} and "
                        f"{plural(self._epochs_told, 'epoch')}"
                    )
                case WorkunitFailed() | UpdateRefused() if not earlier:
                    self._say(setback_words(recorded.event))
        self._tell_epochs()

    def _tell_epochs(self) -> None:
        epochs = self._report.epochs
        for detail in epochs[self._epochs_told :] if self._is_begun else ():
            self._say(epoch_words(self._goal, self._report, detail, self._clock()))
            self._epochs_told = detail.epoch

    @property
    def _is_begun(self) -> bool:
        """Whether this session has begun; what came before it was told when it happened."""
        return self._report.session_began_s >= self._began_s

    def _say(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


class LiveDisplay(Onlooker):
    """The figures of a run in place, redrawn by rich; setbacks scroll by above them."""

    def __init__(self, goal: Goal, console: "Console", clock: "Clock" = time.time) -> None:
        self._goal = goal
        self._console = console
        self._clock = clock
        self._began_s = clock()
        self._report = Report()
        self._view = _View("")

    def phase(self, text: str) -> None:
        self._view = _View(text)

    def events(self, events: Sequence[Recorded]) -> None:
        for recorded in events:
            self._report.fold(recorded)
            event = recorded.event
            if isinstance(event, WorkunitFailed | UpdateRefused) and recorded.time_s >= self._began_s:
                self._console.print(printable(setback_words(event)), style="yellow")
        self._figures = speed_words(self._goal, self._report, self._clock())

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        raise NotImplementedError
