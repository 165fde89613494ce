"""The display in a notebook's cell: what it draws. That a cell shows it is seen by tests/docs/test_notebooks.py."""

from tests.recorded_run import BEGAN_S, FIRST_SESSION, recorded, workunit
from vcdl.journal.observer import RunningTask
from vcdl.report.notebook import NotebookDisplay
from vcdl.report.progress import RunGoal

GOAL = RunGoal("demo", epochs=2, shards=2)


class Cell(NotebookDisplay):
    """A display that keeps what it would show."""

    def __init__(self) -> None:
        super().__init__(GOAL, clock=lambda: BEGAN_S)
        self.shown: list[dict[str, str]] = []

    def _draw(self, is_over: bool) -> None:
        self.shown.append(self._bundle(is_over))


def test_it_draws_figures_while_the_run_goes_on_and_keeps_its_lines() -> None:
    cell = Cell()
    cell.phase("building the model")
    assert cell.shown[-1]["text/plain"] == "demo: building the model … 0 s"
    cell.tasks([RunningTask(workunit(1, 0), "worker-1", 0.5, 0.0)], 1)
    cell.events(recorded(FIRST_SESSION))
    text, html = cell.shown[-1]["text/plain"], cell.shown[-1]["text/html"]
    assert "shard 1 of epoch 1, attempt 1: lost, the worker died (signal 9)" in text
    assert "worker-1" in text
    assert "1 running, 1 waiting" in text
    assert html.startswith("<pre style=")
    assert "<html" not in html
    assert "\x1b" not in text + html
    cell.close()
    last = cell.shown[-1]["text/plain"]
    assert last.splitlines()[-1].startswith("epoch 1/2: accuracy 0.6000")
    assert "running" not in last


def test_of_many_lines_the_last_are_kept() -> None:
    cell = Cell()
    for number in range(100):
        cell.show(f"line {number}")
    cell.close()
    lines = cell.shown[-1]["text/plain"].splitlines()
    assert lines[0] == "… 70 lines before"
    assert (lines[1], lines[-1]) == ("line 70", "line 99")
