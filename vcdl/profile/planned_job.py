"""Transfer what a run has measured to a job that is planned: whether that is possible, its epochs and its work."""

from dataclasses import replace
from filecmp import cmp
from pathlib import Path
from typing import Any

from vcdl.errors import RunFolderError
from vcdl.job import Job
from vcdl.planner.curve import NEEDED, LearningCurve
from vcdl.planner.forecast import Work
from vcdl.profile.measure import profile_run
from vcdl.profile.measured_hosts import mean_subtask, planned_work
from vcdl.profile.stages import RunProfile
from vcdl.run.finding import display_path, find_run
from vcdl.run.frozen_job import read_frozen


def profile_of_run(job: Job, run: Path, unknown: list[str]) -> tuple[RunProfile, Job]:
    """Return the times that a run has measured, and the settings with which they were measured.

    Args:
        job: The job to plan.
        run: The run.
        unknown: What the plan does not know; a different batch size is appended.

    Raises:
        RunFolderError: The run has trained another model or other data.
    """
    folder = find_run(run)
    profile, measured = profile_run(folder), read_frozen(folder)
    # Refuse another model or other data, whose times say nothing. Other settings are scaled (`work_of_job`).
    others = [
        key for key in ("model", "data") if not _are_alike(_time_settings(job, key), _time_settings(measured, key))
    ]
    if others:
        raise RunFolderError(
            f"{display_path(folder.path)} trained another {' and '.join(others)}, whose times say nothing about this "
            "job: name a run of this job, or omit RUN, and some subtasks are measured here"
        )
    if measured.training.batch_size != job.training.batch_size:
        unknown.append(
            f"the time of batches of {job.training.batch_size}: those that were measured have "
            f"{measured.training.batch_size} samples"
        )
    return profile, measured


def _time_settings(job: Job, key: str) -> dict[str, Any]:
    """Return the settings of a job's section `key` that determine the time per sample, so without those of sizes."""
    found: dict[str, Any] = {**job.to_plain_values()[key]}
    return {name: value for name, value in found.items() if name not in ("shards", "split", "validation")}


def _are_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two sections have equal settings; files count as equal if their content is.

    Each job at a service has copies of its files, so their paths differ.
    """
    return one.keys() == other.keys() and all(
        value == other[key] or _is_same_file(value, other[key]) for key, value in one.items()
    )


def _is_same_file(one: Any, other: Any) -> bool:
    if not (isinstance(one, str) and isinstance(other, str) and Path(one).is_file() and Path(other).is_file()):
        return False
    # Compare the content: a shallow comparison goes by size and modification time, which differs between copies.
    return cmp(one, other, shallow=False)


def planned_epochs(job: Job, profile: RunProfile, accuracy: float | None, unknown: list[str]) -> int:
    """Return the number of epochs to plan for: `stop > epochs`, or as many as `accuracy` requires.

    Caveats about that number are appended to `unknown`.

    Raises:
        RunFolderError: The accuracy is beyond the learning curve.
    """
    if accuracy is None:
        return job.stop.epochs
    epochs = profile.history.epochs
    curve = LearningCurve.fit([one.mean for one in epochs])
    if curve is None:
        unknown.append(f"when {accuracy:g} is reached: it needs a run of {NEEDED} measured epochs")
        return job.stop.epochs
    needed = curve.epochs_to(accuracy)
    # Refuse more than ten times the job's epochs: so far beyond the measured ones the fitted curve is a guess.
    if needed is None or needed > 10 * job.stop.epochs:
        reached = f"{curve.at(job.stop.epochs):.4f}"
        raise RunFolderError(
            f"{accuracy:g} is beyond this job's curve, which ends at {curve.limit:.4f}; "
            f"after {job.stop.epochs} epochs it has about {reached}: request that, or change the job"
        )
    unknown.append(
        f"whether {accuracy:g} comes after {needed:.0f} epochs, as the run's own curve says (± {curve.error:.4f})"
    )
    return max(1, round(needed))


def work_of_job(job: Job, profile: RunProfile, measured: Job, epochs: int) -> Work:
    """Return the work of a job, scaled from the subtasks that were measured.

    Args:
        job: The job to plan.
        profile: The measured times.
        measured: The settings with which they were measured.
        epochs: Number of epochs to plan for.
    """
    subtask = mean_subtask(profile.total())
    passes = job.training.local_epochs / measured.training.local_epochs
    # Scale the subtask by its samples, because the measured run may have other shards and local epochs.
    subtask = replace(subtask, samples=subtask.samples * passes * measured.data.shards / job.data.shards)
    return planned_work(profile, epochs * job.data.shards, subtask, job.data.shards)


def cut_work(work: Work, shards: int) -> Work:
    """Return the same work, cut into another number of shards: with more, each subtask is smaller."""
    subtask = replace(work.subtask, samples=work.subtask.samples * work.shards / shards)
    # Keep the number of epochs: each has as many subtasks as there are shards.
    return replace(work, subtask=subtask, subtasks=work.subtasks // work.shards * shards, shards=shards)
