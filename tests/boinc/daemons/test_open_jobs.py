"""A daemon's part of a job is put together again when the job's settings were changed."""

import os
from pathlib import Path
from typing import cast

from tests.run_folders import make_run
from vcdl.boinc.daemons.open_jobs import OpenJobs
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.journal.events import Recorded, RunStarted
from vcdl.run.control import change
from vcdl.run.folder import RunFolder
from vcdl.run.kind import BOINC


class Part:
    closed = 0

    def run_once(self) -> bool:
        return False

    def close(self) -> None:
        Part.closed += 1


def test_a_changed_job_is_taken_up_with_the_next_round_and_no_other_is(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / name, [Recorded(1, 1.0, RunStarted(resumed=False))], finished=False) for name in "ab"
    ]
    made: list[RunFolder] = []

    def put_together(folder: RunFolder) -> Part:
        made.append(folder)
        return Part()

    for folder in folders:
        folder.kind_file.write_text(BOINC.name)
        os.utime(folder.job_file, ns=(1, 1))
    jobs = OpenJobs(cast(BoincProject, None), put_together, lambda _: folders)
    for _ in range(3):
        jobs.run_once()
    assert made == folders
    change(folders[1], ["boinc.share=3"])
    for _ in range(3):
        jobs.run_once()
    assert made == [*folders, folders[1]]
    assert Part.closed == 1
