"""Several servers share a folder of uploads: each upload has one of them, and a dead one lets go."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcdl.run_folder import RunFolder
from vcdl.upload_folder import UploadFolder, discard_kept_uploads

CLAIM_AND_WAIT = """
import sys
from pathlib import Path
from vcdl.run_folder import RunFolder
from vcdl.upload_folder import UploadFolder
folder = UploadFolder(RunFolder(Path(sys.argv[1])))
print([upload.workunit for upload in folder.claim()], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.create()
    return folder


def bring(folder: RunFolder, *workunits: str) -> None:
    for number, workunit in enumerate(workunits):
        path = folder.uploads / f"{workunit}.h5"
        path.write_bytes(b"12345")
        os.utime(path, (number, number))


def names(server: UploadFolder) -> list[str]:
    return [upload.workunit for upload in server.claim()]


def test_uploads_are_claimed_oldest_first(folder: RunFolder) -> None:
    bring(folder, "b", "a")
    assert [(upload.workunit, upload.size_bytes) for upload in UploadFolder(folder).claim()] == [("b", 5), ("a", 5)]


def test_what_one_server_has_claimed_no_other_gets(folder: RunFolder) -> None:
    bring(folder, "a")
    first, second = UploadFolder(folder), UploadFolder(folder)
    assert names(first) == ["a"]
    assert names(second) == []
    assert names(first) == ["a"]  # until it is done


def test_what_is_done_is_gone_for_all(folder: RunFolder) -> None:
    bring(folder, "a")
    first, second = UploadFolder(folder), UploadFolder(folder)
    names(first)
    first.done("a")
    assert names(first) == names(second) == []
    assert not (folder.uploads / "a.h5").exists()


def test_a_server_takes_a_few_at_a_time_and_leaves_the_rest_to_others(folder: RunFolder) -> None:
    bring(folder, *(f"w{number:02d}" for number in range(12)))
    first, second = UploadFolder(folder), UploadFolder(folder)
    assert len(names(first)) == 8
    assert len(names(second)) == 4


def test_the_uploads_of_a_killed_server_are_taken_by_another(folder: RunFolder) -> None:
    bring(folder, "a")
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIM_AND_WAIT, folder.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "['a']\n"
    mine = UploadFolder(folder)
    assert names(mine) == []
    other.kill()
    other.communicate()
    assert names(mine) == ["a"]


def test_an_applied_upload_is_kept_until_a_snapshot_covers_it(folder: RunFolder) -> None:
    folder.kept_uploads.mkdir()
    bring(folder, "a", "b", "refused")
    server = UploadFolder(folder)
    names(server)
    server.done("a", 1)
    server.done("b", 2)
    server.done("refused")
    assert sorted(path.name for path in folder.kept_uploads.iterdir()) == ["v000001_a.h5", "v000002_b.h5"]
    discard_kept_uploads(folder, up_to_version=1)
    assert [path.name for path in folder.kept_uploads.iterdir()] == ["v000002_b.h5"]
