"""What the user sees while a run goes on: a live display on a terminal, plain lines anywhere else.

Both are onlookers: they fold the journal's events into a Report and show its figures. Nothing they do can change a run.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from vcdl.events import (
    EpochClosed,
    Recorded,
    ResultRefused,
    RunStarted,
    UpdateRefused,
    VersionEvaluated,
    WorkunitFailed,
)
from vcdl.report import progress
from vcdl.report.measures import Report
from vcdl.report.onlooker import Onlooker, RunningTask
from vcdl.report.progress import Goal
from vcdl.report.wording import duration, plural, printable
from vcdl.workunit import WorkunitName

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Clock = Callable[[], float]

_REDRAWS_S = 4
"""Redraws a second."""
_TASKS_SHOWN = 8
_BAR_WIDTH = 40
"""Characters."""


@contextmanager
def display(goal: Goal, stream: IO[str]) -> Iterator[Onlooker]:
    """Show a run on `stream` until the context is left."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainLines(goal, stream)
        return
    from rich.live import Live

    onlooker = LiveDisplay(goal, console)
    with Live(console=console, get_renderable=onlooker.render, refresh_per_second=_REDRAWS_S, transient=True):
        yield onlooker


class EventLines(Onlooker, ABC):
    """Tells each epoch and each setback once that comes while it is there; what came before is only counted."""

    def __init__(self, goal: Goal, clock: Clock) -> None:
        self._goal = goal
        self._clock = clock
        self._made_s = clock()
        self._session_began = False
        self._report = Report()
        self._epochs_told = 0

    def events(self, events: Sequence[Recorded]) -> None:
        for line in self._lines(events):
            self.say(line)

    @abstractmethod
    def say(self, line: str) -> None:
        """Show one line of plain text that stays."""

    def _lines(self, events: Sequence[Recorded]) -> list[str]:
        lines: list[str] = []
        for recorded in events:
            if not self._session_began and recorded.time_s >= self._made_s:
                self._session_began = True
                self._epochs_told = len(self._report.epochs)
            self._report.fold(recorded)
            match recorded.event:
                case RunStarted(resumed) if self._session_began:
                    if resumed:
                        lines.append(f"going on after {plural(len(self._report.updates), 'update')}")
                case WorkunitFailed() | UpdateRefused() | ResultRefused() if self._session_began:
                    lines.append(progress.setback_words(recorded.event))
                case VersionEvaluated() | EpochClosed() if self._session_began:
                    epochs = self._report.epochs[self._epochs_told :]
                    lines += [progress.epoch_words(self._goal, self._report, detail) for detail in epochs]
                    self._epochs_told += len(epochs)
        return lines


class PlainLines(EventLines):
    """A line for each phase, each epoch and each setback; no control characters."""

    def __init__(self, goal: Goal, stream: IO[str], clock: Clock = time.time) -> None:
        super().__init__(goal, clock)
        self._stream = stream
        self._held_up: str | None = None

    def phase(self, text: str) -> None:
        self.say(text)

    def held_up(self, why: str | None) -> None:
        if why != self._held_up:
            self._held_up = why
            self.say(f"waiting: {why}" if why else "going on")

    def say(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


class LiveDisplay(EventLines):
    """The figures of a run in place; epochs and setbacks stay above them as lines.

    `render` is called by rich's thread, the hooks by the run's: a lock keeps a half-folded report from being drawn.
    """

    def __init__(self, goal: Goal, console: "Console", clock: Clock = time.time) -> None:
        super().__init__(goal, clock)
        self._console = console
        self._lock = threading.Lock()
        self._phase = "starting"
        self._held_up = ""
        self._running: Sequence[RunningTask] = ()
        self._waiting = 0

    def phase(self, text: str) -> None:
        self._phase = text

    def held_up(self, why: str | None) -> None:
        self._held_up = f"waiting: {why}" if why else ""

    def events(self, events: Sequence[Recorded]) -> None:
        with self._lock:
            lines = self._lines(events)
        for line in lines:  # not under the lock: printing redraws the display, which takes it
            self.say(line)

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        self._running, self._waiting = running, waiting
        if running or self._is_trained:
            self._phase = ""

    def say(self, line: str) -> None:
        self._console.print(printable(line))

    @property
    def _is_trained(self) -> bool:
        """Whether nothing is left but to measure."""
        return self._report.stop is not None or len(self._report.updates) >= self._goal.subtasks

    def render(self) -> "RenderableType":
        """The display as it should be drawn now."""
        from rich.text import Text

        with self._lock:
            if not self._report.updates and not self._running:
                what = printable(self._held_up or self._phase)
                return Text(f"{self._goal.job}: {what} … {duration(self._clock() - self._made_s)}")
            return self._table()

    def _table(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        goal, report, now_s = self._goal, self._report, self._clock()
        epoch = progress.epoch_at_work(goal, report)
        done = report.applied_by_epoch.get(epoch, 0)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)

        def bar(label: str, done: float, total: float, words: str) -> None:
            table.add_row(label, ProgressBar(total=total, completed=done, width=_BAR_WIDTH), words)

        bar(f"epoch {epoch}/{goal.epochs}", done, goal.shards, f"{done}/{goal.shards} shards")
        bar("whole run", len(report.updates), goal.subtasks, f"{progress.left_words(goal, report, now_s)} left")
        for task in self._running[:_TASKS_SHOWN]:
            name = WorkunitName.parse(task.workunit)
            bar(f"  {printable(task.host)}", task.fraction, 1.0, f"shard {name.shard} of epoch {name.epoch}")
        return self._with_figures(table, now_s)

    def _with_figures(self, bars: "Table", now_s: float) -> "Table":
        from rich.table import Table

        report = self._report
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="bold", no_wrap=True)
        figures.add_column()
        measured = "loss" if report.is_regression else "accuracy"
        busy = f"{len(self._running)} running, {self._waiting} waiting"
        figures.add_row(measured, progress.score_words(self._goal, report))
        figures.add_row("subtasks", f"{busy}, {progress.count_words(report)}")
        figures.add_row("speed", progress.speed_words(report, now_s))
        figures.add_row("staleness", progress.staleness_words(report))
        figures.add_row("running for", duration(report.wall_s_at(now_s)))
        whole = Table.grid()
        phase = self._held_up or self._phase or ("measuring the last weights" if self._is_trained else "")
        whole.add_row(f"{self._goal.job}: {printable(phase)}" if phase else self._goal.job)
        whole.add_row(bars)
        whole.add_row(figures)
        return whole
