"""Run the trials of `vcdl sweep` as jobs of a service."""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.errors import RunFolderError
from vcdl.remote.parcel import parcel_of

if TYPE_CHECKING:
    import optuna

    from vcdl.remote.service_client import ServiceClient

KEY = "key"
"""Attribute of a trial that stores the Idempotency-Key of its job: however often a killed sweep submits the job again,
the service starts it only once."""
_LOOK_S = 2.0
"""Seconds between two requests for a trial's state, so that a sweep costs the service little."""
_OVER = ("finished", "failed")


def train_remotely(
    study: "optuna.Study", trial: "optuna.Trial", client: "ServiceClient", job_file: Path, settings: Sequence[str]
) -> str:
    """Train a trial as a job of a service, and report its result to Optuna, which may end it early.

    Ctrl-C pauses the job; a later call for the same trial continues it.

    Args:
        study: The sweep.
        trial: The trial, which gets the attribute KEY.
        client: The service.
        job_file: The job file.
        settings: Settings KEY=VALUE of the trial and of the user.

    Returns:
        A text about the result.

    Raises:
        RunFolderError: The job failed.
        VcdlError: The service refuses the job, or cannot be reached.
    """
    from optuna.trial import TrialState

    key = trial.user_attrs.get(KEY, uuid.uuid4().hex)
    # Store the key before the job is submitted: a sweep that is killed in between submits again with the same key.
    trial.set_user_attr(KEY, key)
    with parcel_of(job_file, settings) as parcel:
        name = client.submit(client.send(parcel), key)
    job: dict[str, Any] = client.job(name)
    if job["state"] == "paused":  # by the sweep that was interrupted
        client.resume(name)
    told = 0
    try:
        while (job := client.job(name))["state"] not in _OVER:
            for epoch in job.get("epochs_detail", ())[told:]:
                trial.report(epoch["mean"], epoch["epoch"])
                told += 1
            if told and trial.should_prune():
                _end(client, name)
                study.tell(trial, state=TrialState.PRUNED)
                return f"{name} pruned after epoch {told}"
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        client.stop(name)
        raise
    # Use the service's choice of the best epoch, because it knows whether higher or lower is better.
    best = [epoch["mean"] for epoch in job["epochs_detail"] if epoch["epoch"] == job["best_epoch"]]
    if job["state"] == "failed" or not best:
        study.tell(trial, state=TrialState.FAIL)
        raise RunFolderError(f"trial {trial.number} failed: `vcdl status {name} --server {client.name}` says more")
    study.tell(trial, best[0])
    return f"{name}: {job['monitor']['name']} {best[0]:.4f} in epoch {job['best_epoch']}"


def _end(client: "ServiceClient", name: str) -> None:
    """Make a pruned trial's job finish with the results that it has.

    A job that is only paused would stay open, and a submitter may have only ten open jobs.
    """
    client.stop(name)
    # The settings of a run on one machine can be changed only while it is paused.
    while client.job(name)["state"] == "running":
        time.sleep(_LOOK_S)
    # Let the job finish, so that it keeps its results: it has trained for longer than 1 s, so this limit ends it at its
    # first check after it resumes.
    client.command("set", [name, "stop.wall_time_s=1"], {})
    client.resume(name)
