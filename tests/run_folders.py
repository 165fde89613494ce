"""Run folders as a run leaves them, made without running anything."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.recorded_run import WHOLE_RUN
from vcdl.job import Job, save_job
from vcdl.job.data import DataSettings
from vcdl.job.model import ModelSettings
from vcdl.job.stop import StopSettings
from vcdl.journal.events import Recorded
from vcdl.journal.journal import Journal
from vcdl.report.measures import Report
from vcdl.report.summary import summary_of, write_summary
from vcdl.run.folder import RunFolder
from vcdl.run.kind import LOCAL, RunKind
from vcdl.wire.workunit import Named

DEMO = Job(
    name="demo",
    model=ModelSettings(builtin=Named("mlp", {"units": [4]})),
    data=DataSettings(dataset="digits", shards=2),
    stop=StopSettings(epochs=2),
)


def unpacked(archive: Path, folder: Path) -> RunFolder:
    """The one run that an archive holds, unpacked into a folder."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (run,) = folder.iterdir()
    return RunFolder.existing(run)


def make_run(
    path: Path, events: Sequence[Recorded] = WHOLE_RUN, finished: bool = True, host: RunKind = LOCAL
) -> RunFolder:
    """A run of DEMO with these events in its journal and, when it is finished, with its summary."""
    folder = RunFolder(path.resolve())
    folder.create(host)
    save_job(DEMO, folder.job_file)
    journal = Journal.at(folder.journal_file)
    for recorded in events:
        journal.append(recorded.event, time_s=recorded.time_s)
    journal.close()
    if finished:
        write_summary(folder.summary_file, summary_of(DEMO.name, Report.of(events)))
    return folder


def readable_files_with(secret: str, folder: Path) -> list[str]:
    """Files of a folder that others than the owner may read, and that have the secret in them."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077)
    return [str(path.relative_to(folder)) for path in files if secret.encode() in path.read_bytes()]
