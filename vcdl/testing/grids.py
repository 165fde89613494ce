"""Test the contract of every grid that a run's own process drives."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from vcdl.job import Job
from vcdl.journal.events import Recorded, StopReason, UpdateApplied, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.local.run import run_over
from vcdl.loop.grid import DrivenGrid, Outcome
from vcdl.loop.loop import Loop
from vcdl.loop.preparation import prepare
from vcdl.run.driver import create_run
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of
from vcdl.run.staging import Staged, Uploaded

_PATIENCE_S = 120.0
"""Seconds that a contract test waits for a client: longer than the start of a process on a busy machine."""
_JOB = {
    "name": "contract",
    "model": {"builtin": {"name": "mlp", "units": [4]}},
    "data": {"dataset": "digits", "shards": 3},
    "stop": {"epochs": 1},
    "grid": {"workers": 1},
}


class GridContract:
    """Tests that every grid must pass: a package's test class subclasses it and sets `open_grid`.

    They train a small model, and check that each subtask counts once, also after a pause or a kill.

    class TestCommandsGrid(GridContract):
        open_grid = CommandsGrid
    """

    open_grid: ClassVar[Callable[[RunFolder, Job], DrivenGrid]]
    """Opens a grid over a run's folder. A second call stands for the process that follows a killed one."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Iterator[RunFolder]:
        """Yield the folder of a new run, whose lock is held."""
        folder = RunFolder(tmp_path / "run")
        with create_run(folder, Job.model_validate(_JOB)):
            yield folder

    def test_a_job_that_is_paused_and_resumed_counts_each_subtask_once(self, folder: RunFolder) -> None:
        open_grid = type(self).open_grid
        assert run_over(folder, _PausedByUpdate(folder), open_grid) is None
        assert run_over(folder, RunObserver(), open_grid) == StopReason.EPOCHS
        applied = Counter(event.subtask for event in events_of(folder, UpdateApplied))
        assert sorted(applied.values()) == [1] * 3
        assert list(folder.uploads.iterdir()) == [], "what is done is forgotten with its files"

    def test_an_outcome_is_claimed_until_it_is_done_and_by_whoever_follows_a_killed_process(
        self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self._looped(folder) as (loop, grid):
            submitted: list[Staged] = []
            submit = grid.submit

            def noted(staged: Sequence[Staged]) -> None:
                submitted.extend(staged)
                submit(staged)

            monkeypatch.setattr(grid, "submit", noted)
            loop.step()
            names = {item.workunit.name for item in submitted}
            assert names == loop.coordinator.history.open.keys()
            assert len(names) == grid.target_open_workunits()
            submit(submitted)  # as after a kill between the two
            outcomes = _brought(grid, len(names))
            # An outcome that is not `done` must be claimed again by the next call.
            assert [outcome.workunit for outcome in grid.claim()] == [outcome.workunit for outcome in outcomes]
            begun = [sent.workunit for sent in (*events_of(folder, WorkunitSent), *grid.sent())]
            assert sorted(begun) == sorted(names), "what it has already is not started again"
            assert grid.sent() == []
        # The second grid over the same folder knows nothing of the first one, as after a kill.
        with self._looped(folder) as (_, following):
            again = _brought(following, len(names))
            assert {outcome.workunit for outcome in again} == names
            for outcome in again:
                assert isinstance(outcome, Uploaded)
                assert following.has(outcome.workunit)
                following.done(outcome.workunit)
                assert not following.has(outcome.workunit)
                assert not outcome.path.exists()
            assert list(following.claim()) == []

    def test_a_cancelled_workunit_is_forgotten(self, folder: RunFolder) -> None:
        with self._looped(folder) as (loop, grid):
            loop.step()
            workunits = set(loop.coordinator.history.open)
            grid.cancel(workunits)
            grid.cancel(workunits)
            grid.wait(0.0)
            assert not any(grid.has(workunit) for workunit in workunits)
            assert list(grid.claim()) == []

    @contextmanager
    def _looped(self, folder: RunFolder) -> Iterator[tuple[Loop, DrivenGrid]]:
        """Yield the loop of a run and its started grid; nothing claims uploads.

        Then close both without `done`, like a kill.
        """
        run = prepare(folder, Job.model_validate(_JOB), RunObserver())
        grid = type(self).open_grid(folder, run.job)
        loop = Loop.of(run, grid)
        try:
            grid.start()
            loop.start_or_resume()
            yield loop, grid
        finally:
            loop.close()
            grid.close()


class _PausedByUpdate(RunObserver):
    """Requests a pause of the run, by creating its stop file, when updates are applied."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def events(self, events: Sequence[Recorded]) -> None:
        if any(isinstance(recorded.event, UpdateApplied) for recorded in events):
            self._folder.stop_request.touch()


def _brought(grid: DrivenGrid, number: int) -> list[Outcome]:
    """Wait until the grid has at least `number` outcomes, and return them; fail after `_PATIENCE_S` seconds."""
    give_up = time.monotonic() + _PATIENCE_S
    while len(outcomes := list(grid.claim())) < number:
        assert time.monotonic() < give_up, f"{outcomes} and no more after {_PATIENCE_S:g} s"
        grid.wait(0.05)
    return outcomes
