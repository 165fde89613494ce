"""The beginning of a run on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

from vcdl.job import Job
from vcdl.run.beginning import discarded_if_refused
from vcdl.run.finding import unfinished
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import LOCAL


@contextmanager
def begun(folder: RunFolder, job: Job) -> Iterator[Job]:
    """A new run in a folder, locked, with the job as the run follows it; nothing is left of one that the block
    refuses before its first subtask. Raises RunFolderError, JobError.
    """
    is_new = not folder.path.exists()
    folder.make()
    with RunLock(folder):
        if folder.job_file.exists():  # another process has begun a run here meanwhile
            raise unfinished(folder.path)
        with discarded_if_refused(folder, is_new=is_new):
            folder.create(LOCAL)
            yield freeze(job.trusting(LOCAL.trust), folder)
