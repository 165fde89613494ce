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
"""Attribute of a trial with the key of its submission: the job starts once, however often a killed sweep is resumed."""
_LOOK_S = 2.0
"""Seconds between two looks at the service's jobs, so that a sweep costs it little."""
_OVER = ("finished", "failed")


def train_remotely(
    study: "optuna.Study", trial: "optuna.Trial", client: "ServiceClient", job_file: Path, settings: Sequence[str]
) -> str:
    """Train a trial at a service, unless Optuna ends it early; return how it ended.

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
    """End a job with its current results.

    A job that is only paused would stay open, and a token has room for ten.
    """
    client.stop(name)
    # The settings of a run on one machine can be changed only while it is paused.
    while client.job(name)["state"] == "running":
        time.sleep(_LOOK_S)
    # Let the job finish, so that it keeps its results: it has trained for longer than 1 s, so this limit ends it at its
    # first check after it resumes.
    client.command("set", [name, "stop.wall_time_s=1"], {})
    client.resume(name)
