"""Show a run in a notebook: the figures of the live display, redrawn in the output of a cell."""

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vcdl.errors import printable
from vcdl.journal.events import Recorded
from vcdl.journal.observer import RunningTask
from vcdl.report.display import Clock, LiveDisplay
from vcdl.report.progress import RunGoal

_WIDTH = 100
"""Characters of a line, so that it fits the cell of a notebook."""
_REDRAW_EVERY_S = 0.5
"""Seconds between two redraws: each is sent to the browser."""
_LINES_SHOWN = 30
"""Epochs and setbacks shown above the figures, so that a cell stays short; earlier ones are counted."""


def is_notebook() -> bool:
    """Return whether this program runs in a notebook's kernel, without importing IPython."""
    import sys

    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and shell.has_trait("kernel")


@contextmanager
def notebook_display(goal: RunGoal, clock: Clock | None = None) -> Iterator["NotebookDisplay"]:
    """Yield an observer that shows a run in the output of the current cell; at the end only its lines stay."""
    display = NotebookDisplay(goal, clock)
    try:
        yield display
    finally:
        display.close()


class NotebookDisplay(LiveDisplay):
    """The live display as HTML in the output of a cell, which is replaced with each redraw."""

    def __init__(self, goal: RunGoal, clock: Clock | None = None) -> None:
        from rich.console import Console

        # rich would otherwise notice the notebook and write into the cell itself.
        console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, force_jupyter=False)
        super().__init__(goal, console, clock)
        self._lines_shown: list[str] = []
        self._handle: Any = None
        self._drawn_s = 0.0

    def show(self, line: str) -> None:
        self._lines_shown.append(printable(line))

    def phase(self, text: str) -> None:
        super().phase(text)
        self._draw_if_due()

    def events(self, events: Sequence[Recorded]) -> None:
        super().events(events)
        self._draw_if_due()

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        super().tasks(running, waiting)
        self._draw_if_due()

    def close(self) -> None:
        """Redraw the cell a last time: only the lines, without the figures."""
        self._draw(is_over=True)

    def _draw_if_due(self) -> None:
        if time.monotonic() - self._drawn_s >= _REDRAW_EVERY_S:
            self._draw(is_over=False)

    def _draw(self, is_over: bool) -> None:
        """Redraw the cell's output; with `is_over` without the figures."""
        from IPython.display import display

        self._drawn_s = time.monotonic()
        bundle = self._bundle(is_over)
        # The first call creates a place in the cell, and later calls replace its content instead of adding output.
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _bundle(self, is_over: bool) -> dict[str, str]:
        """Return a cell's content as text and as HTML."""
        from rich.console import Group
        from rich.text import Text

        left_out = len(self._lines_shown) - _LINES_SHOWN
        lines = [f"… {left_out} lines before", *self._lines_shown[left_out:]] if left_out > 0 else self._lines_shown
        shown = Group(*map(Text, lines)) if is_over else Group(*map(Text, lines), self.render())
        from rich.console import Console

        # Another console: the first one measures the width of the bars, this one records what is drawn for the export.
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_jupyter=False, force_terminal=True)
        console.print(shown)
        return {
            "text/html": console.export_html(inline_styles=True, code_format=_PRE, clear=False),
            "text/plain": console.export_text(clear=False).rstrip("\n"),
        }


_PRE = '<pre style="line-height:normal;font-family:Menlo,Consolas,monospace">{code}</pre>'
