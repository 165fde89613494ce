"""The speed of this machine for a job, from some of its subtasks, trained here by the job's own workers."""

import tempfile
from pathlib import Path

from vcdl.errors import RunFolderError
from vcdl.job import Job
from vcdl.local.run import run_locally
from vcdl.profile.stages import RunProfile
from vcdl.report.observer import RunObserver
from vcdl.run.finding import shown
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.reading import journal_of

MOST_S = 40.0
"""Longest measurement, in seconds of training."""


def measured_run(folder: RunFolder) -> RunProfile:
    """The profile of a run, also while it runs. Raises RunFolderError when it has no update."""
    with journal_of(folder) as journal:
        profile = RunProfile.of(() if journal is None else journal.stream())
    if not profile.sums:
        raise RunFolderError(
            f"{shown(folder.path)} has no upload that was folded in: leave it out, and some subtasks are measured here"
        )
    return profile


def measured_here(job: Job) -> RunProfile:
    """The profile of an epoch of the job, or of MOST_S of it, in a folder that is gone afterwards.

    Raises VcdlError for a job that cannot be trained, and RunFolderError when it brings no update.
    """
    stop = job.stop.model_copy(update={"epochs": 2, "wall_time_s": MOST_S, "target_accuracy": None, "target": None})
    with tempfile.TemporaryDirectory(prefix="vcdl-plan-") as path:
        folder = RunFolder(Path(path) / "run")
        folder.create()
        freeze(job.model_copy(update={"stop": stop}), folder)
        run_locally(folder, RunObserver())
        with journal_of(folder) as journal:
            profile = RunProfile.of(() if journal is None else journal.stream())
    if not profile.sums:
        raise RunFolderError(
            f"no subtask came to its end within {MOST_S:g} s here: plan with a run's measurements, `vcdl plan JOB RUN`"
        )
    return profile
