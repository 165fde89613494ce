"""Log a run to MLflow or trackio: settings and curves, through their own clients.

Logging a run again replaces the earlier log.
"""

import hashlib
import os
import shlex
import socket
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vcdl.errors import GridError, without_passwords
from vcdl.files.extras import require
from vcdl.job import Job
from vcdl.journal.events import Recorded
from vcdl.report.measures import Report
from vcdl.report.own_settings import own_settings
from vcdl.report.tensorboard import scalars

_RUN = "vcdl.run"
"""Tag by which an earlier log of the same run is found: a hash of the machine and the folder."""
_METRICS, _PARAMETERS = 1000, 100
"""Most metrics and most parameters in a request, which are MLflow's limits."""
_LONGEST = 6000
"""Characters of a setting, because MLflow accepts no more."""
_TRIES = "2"
"""MLFLOW_HTTP_REQUEST_MAX_RETRIES: MLflow's own default retries for minutes."""


def log_to_trackio(folder: Path, job: Job, report: Report, events: Iterable[Recorded]) -> str:
    """Log a run to trackio's folder (TRACKIO_DIR), replacing an earlier log of it.

    trackio's project gets the job's name, and its run the name of the run's folder.

    Args:
        folder: The run's folder.
        job: The job.
        report: The run's report.
        events: The whole journal, in order.

    Returns:
        The shell command that shows the log.

    Raises:
        GridError: trackio is not installed, or cannot write its folder.
    """
    require("trackio", "trackio")
    from trackio import SQLiteStorage

    # trackio stores a row for each call, so all points of one step and time are logged together.
    by_step: defaultdict[tuple[int, float], dict[str, float]] = defaultdict(dict)
    for one in sorted(scalars(report, events)):
        by_step[one.step, one.time_s][one.tag] = one.value
    times = [datetime.fromtimestamp(time_s, UTC).isoformat() for _, time_s in by_step]
    settings = {key: value for key, (value, _) in own_settings(job).items()}
    try:
        # trackio appends to a run of the same name, so an earlier log would double each point.
        if folder.name in SQLiteStorage.get_runs(job.name):
            SQLiteStorage.delete_run(job.name, folder.name)
        steps = [step for step, _ in by_step]
        SQLiteStorage.bulk_log(job.name, folder.name, [*by_step.values()], steps, times, settings)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise GridError(f"trackio does not take the run ({str(error)[:200]}): look at its folder") from error
    return f"trackio show --project {shlex.quote(job.name)}"


def log_to_mlflow(
    server: str, folder: Path, job: Job, report: Report, events: Iterable[Recorded], files: Sequence[Path]
) -> str:
    """Log a run to an MLflow server, replacing an earlier log of it, and return the URL of its page.

    The experiment gets the job's name. Only settings that differ from their defaults are logged. Sets environment
    variables of MLflow in this process.

    Args:
        server: The server's URL.
        folder: The run's folder, whose name the run gets at the server.
        job: The job.
        report: The run's report.
        events: The whole journal, in order.
        files: Files to attach.

    Raises:
        GridError: MLflow is not installed, or the server cannot be reached or refuses the run.
    """
    require("mlflow", "mlflow")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", _TRIES)  # before MLflow is imported
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    # A hash, so that the name of the machine and the path do not reach a server that others read.
    mark = hashlib.sha256(f"{socket.gethostname()}:{folder.resolve()}".encode()).hexdigest()
    points = sorted(scalars(report, events))
    begin_s = min((point.time_s for point in points), default=report.history.last_s)
    try:
        client = MlflowClient(server)
        known = client.get_experiment_by_name(job.name)
        experiment = client.create_experiment(job.name) if known is None else known.experiment_id
        earlier = client.search_runs([experiment], f"tags.`{_RUN}` = '{mark}'")
        tags = {_RUN: mark, "mlflow.runName": folder.name}
        run = client.create_run(experiment, start_time=int(1000 * begin_s), tags=tags).info.run_id
        settings = [Param(key, value[:_LONGEST]) for key, (value, _) in own_settings(job).items()]
        client.log_batch(run, params=settings[:_PARAMETERS])
        metrics = [Metric(one.tag, one.value, int(1000 * one.time_s), one.step) for one in points]
        for begin in range(0, len(metrics), _METRICS):
            client.log_batch(run, metrics=metrics[begin : begin + _METRICS])
        for file in files:
            client.log_artifact(run, str(file))
        # A run that is under way stays "running" at the server.
        if report.history.finished or report.is_given_up:
            state = "FAILED" if report.is_given_up else "FINISHED"
            client.set_terminated(run, state, int(1000 * report.history.last_s))
        # Delete the earlier log last, so that it survives if this one fails; the next try finds and replaces both.
        for former in earlier:
            client.delete_run(former.info.run_id)
    except (MlflowException, OSError) as error:
        raise GridError(f"{without_passwords(server)} does not take the run ({str(error)[:200]})") from error
    return f"{without_passwords(server)}/#/experiments/{experiment}/runs/{run}"
