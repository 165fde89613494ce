"""Show a run's progress, live on a terminal and as plain lines elsewhere."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from vcdl.errors import printable
from vcdl.journal.clock import SteadyClock
from vcdl.journal.events import Recorded, ResultRefused, UpdateRefused, WorkunitFailed
from vcdl.journal.history import JobHistory
from vcdl.journal.observer import RunningTask, RunObserver
from vcdl.report import progress
from vcdl.report.measures import Report
from vcdl.report.progress import RunGoal
from vcdl.report.wording import duration
from vcdl.wire.workunit import WorkunitName

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Clock = Callable[[], float]

_REDRAWS_S = 4
"""Redraws per second: smooth to the eye, and little work compared with training."""
_TASKS_SHOWN = 8
"""Subtasks shown, so that the display fits a small terminal."""
_BAR_WIDTH = 40
"""Widest bar, in characters."""
_LEAST_BAR_WIDTH = 4
"""Narrowest bar, in characters; in a narrower terminal it is cut off."""
_GAP = 2
"""Characters between two columns, so that they stay apart."""


@contextmanager
def display(goal: RunGoal, stream: IO[str], clock: Clock | None = None) -> Iterator[RunObserver]:
    """Yield an observer that shows a run on `stream` until the block ends.

    Args:
        goal: The end that the run trains towards.
        stream: The terminal or file.
        clock: The journal's clock; None if there is no journal yet.
    """
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainLines(goal, stream, clock)
        return
    from rich.live import Live

    live = LiveDisplay(goal, console, clock)
    with Live(console=console, get_renderable=live.render, refresh_per_second=_REDRAWS_S, transient=True):
        yield live


@contextmanager
def announce(text: str, stream: IO[str]) -> Iterator[None]:
    """Show a message while the block prepares something; on a terminal, erase it at the end."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal or console.is_dumb_terminal:
        print(text, file=stream, flush=True)
        yield
        return
    # Without a line break, so that the line can be erased.
    console.print(text, end="")
    try:
        yield
    finally:
        # Erases the line: the display that follows starts in its place.
        print("\r\x1b[2K", end="", file=stream, flush=True)


class EventLines(RunObserver, ABC):
    """Prints a line for each epoch and each setback; events from before the display began are only counted."""

    def __init__(self, goal: RunGoal, clock: Clock | None, shows_setbacks: bool = True) -> None:
        self._goal = goal
        self._clock = SteadyClock().now_s if clock is None else clock
        self._shows_setbacks = shows_setbacks
        self._made_s = self._clock()
        self._session_began = False
        self._report = Report()
        self._epochs_shown = 0

    def begins(self, history: JobHistory) -> None:
        self._report = Report(history)

    def events(self, events: Sequence[Recorded]) -> None:
        for line in self._lines(events):
            self.show(line)

    @abstractmethod
    def show(self, line: str) -> None:
        """Print one line that stays on the screen, above figures that are redrawn."""

    def _lines(self, events: Sequence[Recorded]) -> list[str]:
        """Apply events to the report, and return the lines about them; events of earlier sessions give none."""
        lines: list[str] = []
        for recorded in events:
            # A resumed run first replays the journal of earlier sessions, whose epochs were shown then.
            if not self._session_began and recorded.time_s >= self._made_s:
                self._session_began = True
                # Epochs of earlier sessions count as shown.
                self._epochs_shown = len(self._report.epochs)
            # Apply events of earlier sessions, too, because the figures are those of the whole run.
            self._report.follow(recorded)
            if not self._session_began:
                continue
            is_setback = isinstance(recorded.event, WorkunitFailed | UpdateRefused | ResultRefused)
            words = progress.event_words(recorded.event, self._report)
            if words is not None and (self._shows_setbacks or not is_setback):
                lines.append(words)
            epochs = self._report.epochs[self._epochs_shown :]
            lines += [progress.epoch_words(self._goal, self._report, detail) for detail in epochs]
            self._epochs_shown += len(epochs)
        return lines


class PlainLines(EventLines):
    """Prints phases, epochs and setbacks as lines without control characters, for logs and pipes."""

    def __init__(
        self, goal: RunGoal, stream: IO[str], clock: Clock | None = None, *, shows_setbacks: bool = True
    ) -> None:
        super().__init__(goal, clock, shows_setbacks)
        self._stream = stream
        self._waiting_for: str | None = None

    def phase(self, text: str) -> None:
        self.show(text)

    def waiting_for(self, why: str | None) -> None:
        if why != self._waiting_for:
            self._waiting_for = why
            self.show(f"waiting: {why}" if why else "continuing")

    def show(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


class LiveDisplay(EventLines):
    """Shows the figures of a run, redrawn in place.

    rich's thread calls `render`, and the run's thread calls the hooks. A lock protects the report that both use.
    """

    def __init__(self, goal: RunGoal, console: "Console", clock: Clock | None = None) -> None:
        super().__init__(goal, clock)
        self._console = console
        self._lock = threading.Lock()
        self._phase = "starting"
        self._waiting_for = ""
        self._running: Sequence[RunningTask] = ()
        self._waiting = 0

    def phase(self, text: str) -> None:
        self._phase = text

    def waiting_for(self, why: str | None) -> None:
        self._waiting_for = f"waiting: {why}" if why else ""

    def begins(self, history: JobHistory) -> None:
        with self._lock:
            super().begins(history)

    def events(self, events: Sequence[Recorded]) -> None:
        with self._lock:
            lines = self._lines(events)
        for line in lines:  # not under the lock: printing redraws the display, which takes it
            self.show(line)

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        self._running, self._waiting = running, waiting
        if running or self._is_trained:
            self._phase = ""

    def show(self, line: str) -> None:
        self._console.print(printable(line))

    @property
    def _is_trained(self) -> bool:
        """Whether all training is done and only measurements are left."""
        return self._report.stop is not None or self._report.subtasks_done >= self._goal.subtasks

    def render(self) -> "RenderableType":
        """Return what to draw now; called by rich's thread several times a second."""
        from rich.text import Text

        with self._lock:
            # Before the first update there is nothing to put into a table but zeros.
            if not self._report.totals.applied and not self._running:
                what = printable(self._waiting_for or self._phase)
                return Text(f"{self._goal.job}: {what} … {duration(self._clock() - self._made_s)}")
            return self._table()

    def _table(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        goal, report, now_s = self._goal, self._report, self._clock()
        epoch = progress.epoch_at_work(goal, report)
        done = report.history.applied_by_epoch.get(epoch, 0)
        bars: list[tuple[str, float, float, str]] = [
            (f"epoch {epoch}/{goal.epochs}", done, goal.shards, f"{done}/{goal.shards} shards"),
            ("whole run", report.subtasks_done, goal.subtasks, f"{progress.left_words(goal, report, now_s)} left"),
        ]
        for task in self._running[:_TASKS_SHOWN]:
            name = WorkunitName.parse(task.workunit)
            words = f"shard {name.shard} of epoch {name.epoch}"
            bars.append((f"  {printable(task.host)}", task.fraction, 1.0, words))
        labels, most = max(len(label) for label, *_ in bars), max(len(words) for *_, words in bars)
        # On a narrow terminal the bars give way, then the words; a line without its label says nothing.
        width = max(_LEAST_BAR_WIDTH, min(_BAR_WIDTH, self._console.width - labels - most - 2 * _GAP))
        table = Table.grid(padding=(0, _GAP))
        table.add_column(style="bold", no_wrap=True, min_width=labels)
        table.add_column(no_wrap=True, min_width=width)
        table.add_column(no_wrap=True)
        for label, completed, total, words in bars:
            table.add_row(label, ProgressBar(total=total, completed=completed, width=width), words)
        return self._with_figures(table, now_s)

    def _with_figures(self, bars: "Table", now_s: float) -> "Table":
        """Return the bars with the phase above and the figures of the run below."""
        from rich.table import Table

        report = self._report
        figures = Table.grid(padding=(0, _GAP))
        figures.add_column(style="bold", no_wrap=True, min_width=len("not measured"))
        figures.add_column()
        busy = f"{len(self._running)} running, {self._waiting} waiting"
        for label, words in progress.measured_figures(self._goal, report).items():
            figures.add_row(label, words)
        figures.add_row("subtasks", f"{busy}, {progress.count_words(report)}")
        figures.add_row("speed", progress.speed_words(report, now_s))
        figures.add_row("staleness", progress.staleness_words(report))
        if report.totals.evaluator_death is not None:
            figures.add_row("not measured", progress.unmeasured_words(report))
        if report.history.rollbacks:
            figures.add_row("rolled back", progress.rollback_words(report))
        figures.add_row("running for", duration(report.history.wall_s_at(now_s)))
        if (money := progress.money_words(self._goal, report, now_s)) is not None:
            figures.add_row("money", money)
        whole = Table.grid()
        # What it waits for comes first, as it explains why nothing else moves.
        phase = self._waiting_for or self._phase or ("measuring the last weights" if self._is_trained else "")
        whole.add_row(f"{self._goal.job}: {printable(phase)}" if phase else self._goal.job)
        whole.add_row(bars)
        whole.add_row(figures)
        return whole
