"""Measure the speed of this machine for a job, by training some of its subtasks with the job's own workers."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vcdl.errors import RunFolderError
from vcdl.job import Job
from vcdl.journal.events import Recorded, UpdateApplied, VersionEvaluated
from vcdl.journal.observer import RunObserver
from vcdl.local.run import run_locally
from vcdl.profile.stages import RunProfile
from vcdl.run.finding import display_path
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.reading import journal_of

MOST_S = 40.0
"""Longest measurement, in seconds of training."""
_STEADY = 8
"""Least number of measured subtasks after the evaluator has started, whose start takes processor time from them."""


class _PauseAfterSubtasks(RunObserver):
    """Pauses a run once some updates were applied after the first evaluation.

    Earlier updates do not count: until then the evaluator is starting, which takes processor time from the workers.
    """

    def __init__(self, folder: RunFolder, subtasks: int) -> None:
        self._folder, self._left = folder, subtasks
        self._is_measured = False

    def events(self, events: Sequence[Recorded]) -> None:
        for recorded in events:
            self._is_measured |= isinstance(recorded.event, VersionEvaluated)
            self._left -= self._is_measured and isinstance(recorded.event, UpdateApplied)
        if self._left <= 0:
            self._folder.stop_request.touch()


def profile_run(folder: RunFolder) -> RunProfile:
    """Return the profile of a run up to now, whether or not it is running.

    Raises:
        RunFolderError: It has no update yet.
    """
    with journal_of(folder) as journal:
        profile = RunProfile.of(() if journal is None else journal.stream())
    if not profile.by_host:
        raise RunFolderError(
            f"{display_path(folder.path)} has no applied upload: leave it out, and some subtasks are measured here"
        )
    return profile


def profile_here(job: Job) -> RunProfile:
    """Train the job's first subtasks in a temporary folder for at most MOST_S seconds, and return their profile.

    Raises:
        VcdlError: The job cannot be trained.
        RunFolderError: No update was made.
    """
    stop = job.stop.model_copy(update={"wall_time_s": MOST_S, "target_accuracy": None, "target": None})
    workers = job.grid.workers if isinstance(job.grid.workers, int) else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="vcdl-plan-") as path:
        folder = RunFolder(Path(path) / "run")
        folder.create()
        freeze(job.model_copy(update={"stop": stop}), folder)
        run_locally(folder, _PauseAfterSubtasks(folder, _STEADY + 2 * workers))
        with journal_of(folder) as journal:
            events = [] if journal is None else list(journal.stream())
    profile = RunProfile.of(events)
    # Measure only after the evaluator's first result. Until then its start takes a core, which slows subtasks down.
    steady = RunProfile(since_s=profile.first_measured_s or 0.0)
    for recorded in events:
        steady.follow(recorded)
    if not profile.by_host:
        raise RunFolderError(
            f"no subtask ended within {MOST_S:g} s here: plan with a run's measurements, `vcdl plan JOB RUN`"
        )
    # The mean of few steady subtasks would be noise, so all subtasks are used then.
    return steady if steady.total().subtasks >= _STEADY else profile
