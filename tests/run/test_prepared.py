"""The facts of a prepared run, in a file that another process reads."""

from pathlib import Path

import pytest

from vcdl.errors import FileUnavailable, RunFolderError
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared


def test_a_damaged_file_ends_the_run_and_one_that_this_machine_cannot_read_is_waited_for(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(RunFolderError, match="No such file"):
        Prepared.read(folder)
    folder.prepared_file.write_text("{")
    with pytest.raises(RunFolderError, match="start another with --out"):
        Prepared.read(folder)
    folder.prepared_file.unlink()
    folder.prepared_file.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    with pytest.raises(FileUnavailable, match=r"prepared\.json is there, but this machine cannot read it"):
        Prepared.read(folder)


def test_a_newer_format_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.prepared_file.write_text('{"format": 2, "shards": "in another form"}')
    with pytest.raises(RunFolderError, match=r"is of format 2, .* reads format 1: go on with the version that began"):
        Prepared.read(folder)
