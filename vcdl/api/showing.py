"""Display a run in the program that waits for it: in a notebook's cell, on a terminal, as lines, or not at all."""

import sys
from contextlib import AbstractContextManager, nullcontext

from vcdl.journal.observer import RunObserver
from vcdl.report.display import PlainLines, display
from vcdl.report.notebook import is_notebook, notebook_display
from vcdl.report.progress import RunGoal
from vcdl.run.folder import RunFolder
from vcdl.run.reading import clock_of


def printing_observer(folder: RunFolder, goal: RunGoal, *, shows: bool) -> AbstractContextManager[RunObserver]:
    """Return a context with the observer that shows a run in the program's output.

    Args:
        folder: The run's folder.
        goal: What the job wants to reach, for the display of progress.
        shows: Print; otherwise the observer does nothing.

    Raises:
        JournalError: The run's journal cannot be read.
    """
    if not shows:
        return nullcontext(RunObserver())
    if not folder.kind.has_wall_clock:  # its journal begins at 0, and its setbacks are simulated on purpose
        return nullcontext(PlainLines(goal, sys.stdout, lambda: 0.0, shows_setbacks=False))
    clock = clock_of(folder)
    return notebook_display(goal, clock) if is_notebook() else display(goal, sys.stdout, clock)
