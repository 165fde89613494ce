"""Several servers share a folder of uploads: each upload has one of them, and a dead one lets go."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vcdl.files.atomic import atomic_write
from vcdl.local.upload_folder import UploadFolder, quarantine_orphans
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import conclude_upload, discard_kept_uploads, keep_upload


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.create()
    return folder


def w(shard: int) -> str:
    return f"j_e0001_s{shard:03d}_a0_v000000"


def bring(folder: RunFolder, *workunits: str) -> None:
    for number, workunit in enumerate(workunits):
        path = folder.uploads / f"{workunit}.h5"
        path.write_bytes(b"12345")
        os.utime(path, (number, number))


def names(server: UploadFolder) -> list[str]:
    return [upload.workunit for upload in server.claim()]


def test_an_upload_that_is_still_being_written_is_left_alone(folder: RunFolder) -> None:
    upload = folder.uploads / f"{w(1)}.h5"
    with atomic_write(upload) as temporary:
        temporary.write_bytes(b"123")
        quarantine_orphans(folder)
        assert UploadFolder(folder).claim() == []
        assert temporary.exists()
    assert names(UploadFolder(folder)) == [w(1)]


def test_what_one_server_has_claimed_no_other_gets(folder: RunFolder) -> None:
    bring(folder, w(1))
    first, second = UploadFolder(folder), UploadFolder(folder)
    assert names(first) == [w(1)]
    assert names(second) == []
    assert names(first) == [w(1)]  # until it is done


def test_what_is_done_is_gone_for_all(folder: RunFolder) -> None:
    bring(folder, w(1))
    first, second = UploadFolder(folder), UploadFolder(folder)
    names(first)
    first.done(w(1))
    assert names(first) == names(second) == []
    assert not (folder.uploads / f"{w(1)}.h5").exists()


def test_a_server_takes_a_few_at_a_time_and_leaves_the_rest_to_others(folder: RunFolder) -> None:
    bring(folder, *map(w, range(12)))
    first, second = UploadFolder(folder), UploadFolder(folder)
    assert len(names(first)) == 8
    assert len(names(second)) == 4


def test_an_applied_upload_is_kept_until_a_snapshot_covers_it(folder: RunFolder) -> None:
    folder.kept_uploads.mkdir()
    bring(folder, w(1), w(2), w(3))
    server = UploadFolder(folder)
    names(server)
    server.done(w(1), 1)
    server.done(w(2), 2)
    server.done(w(3))
    assert sorted(path.name for path in folder.kept_uploads.iterdir()) == [f"v000001_{w(1)}.h5", f"v000002_{w(2)}.h5"]
    discard_kept_uploads(folder, up_to_version=1)
    assert [path.name for path in folder.kept_uploads.iterdir()] == [f"v000002_{w(2)}.h5"]


def test_what_is_no_upload_goes_into_quarantine_with_a_word_and_the_others_are_claimed(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(folder, "notes", w(1))
    (folder.uploads / f"{w(2)}.h5").mkdir()
    assert names(UploadFolder(folder)) == [w(1)]
    assert sorted(path.name for path in (folder.path / "quarantine").iterdir()) == [f"{w(2)}.h5", "notes.h5"]
    assert "'notes.h5' is not an upload of a workunit" in capsys.readouterr().err


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def link_to_another_file(path: Path) -> None:
    path.with_name("other").write_bytes(b"12345")
    path.symlink_to("other")


@pytest.mark.parametrize("make", [link_to_itself, link_to_nothing, link_to_another_file, Path.mkdir, os.mkfifo])
def test_what_is_no_file_of_its_own_goes_into_quarantine(folder: RunFolder, make: Callable[[Path], None]) -> None:
    bring(folder, w(1))
    make(folder.uploads / f"{w(2)}.h5")
    assert names(UploadFolder(folder)) == [w(1)]
    assert [path.name for path in (folder.path / "quarantine").iterdir()] == [f"{w(2)}.h5"]


def test_orphans_are_in_quarantine_before_anybody_claims(folder: RunFolder) -> None:
    bring(folder, "notes", w(1))
    quarantine_orphans(folder)
    assert [path.stem for path in folder.uploads.iterdir()] == [w(1)]


def test_a_kept_upload_is_kept_once_whoever_keeps_it(folder: RunFolder) -> None:
    """The assimilator keeps it before it writes the row; killed then, it does so again, and at last the upload goes."""
    folder.kept_uploads.mkdir()
    bring(folder, w(1))
    upload = folder.uploads / f"{w(1)}.h5"
    for _ in range(2):
        keep_upload(folder, upload, w(1), 7)
    assert upload.exists()
    conclude_upload(folder, w(1), 7)
    assert not upload.exists()
    assert [path.name for path in folder.kept_uploads.iterdir()] == [f"v000007_{w(1)}.h5"]
    (folder.kept_uploads / "validation.h5").touch()  # of somebody else
    discard_kept_uploads(folder, up_to_version=7)
    (folder.kept_uploads / "validation.h5").unlink()
    (folder.kept_uploads / f".v000008_{w(2)}.123.h5").touch()  # of a process that was killed
    discard_kept_uploads(folder, up_to_version=7)
    assert not list(folder.kept_uploads.glob("v*.h5"))
