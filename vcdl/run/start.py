"""The run that a job continues from: `model > from`."""

from typing import Any

from vcdl.errors import RunFolderError
from vcdl.job import Job
from vcdl.run.export import newest_version, trained_model
from vcdl.run.finding import is_finished, read_report
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run


def start_of(job: Job) -> Any:
    """The Keras model of the finished run that a job names, with its last weights; None: the job names none.

    Raises RunFolderError, ModelError, WeightsFileError, FileUnavailable.
    """
    if job.model.from_run is None:
        return None
    run = Run.open(RunFolder.existing(job.model.from_run))
    if not is_finished(run.folder):
        raise RunFolderError(
            f"model > from: {run.folder.path} is not finished: wait for it, or continue with `vcdl resume`"
        )
    stop = read_report(run.folder).stop
    return trained_model(run, newest_version(run.folder) if stop is None else stop.version)
