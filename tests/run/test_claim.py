"""Folders of runs whose weights lie elsewhere: moved, copied and restored."""

import json
import platform
import shutil
from pathlib import Path

import pytest

from tests.served_run import ServedRun, noise
from vcdl.errors import RunFolderError
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.run.store_claim import claim_key
from vcdl.wire.layout import Vector

SIZE = 100


@pytest.fixture
def served(tmp_path: Path) -> ServedRun:
    """Two updates were folded in; the weights lie in a folder outside the run's."""
    served = ServedRun.new(tmp_path / "runs" / "run", noise(0, SIZE), f"file:{tmp_path / 'elsewhere'}")
    for number in range(2):
        served.bring(number, noise(number + 1, SIZE))
    ParameterServer.of(served.run, served.run.journal(), UploadFolder(served.folder)).run_once()
    return served


def key_of(path: Path, *, may_restore: bool = True) -> str:
    run = Run.open(RunFolder(path))
    return claim_key(run.folder, run.prepared, may_restore=may_restore)


def weights_of(path: Path) -> tuple[int, Vector]:
    run = Run.open(RunFolder(path))
    server = ParameterServer.of(run, run.journal(), UploadFolder(run.folder))
    server.catch_up()
    return server.store.read()


def copied(path: Path, new: Path) -> Path:
    """As `cp -a` does."""
    return Path(shutil.copytree(path, new))


def test_a_copy_has_a_key_of_its_own_whether_its_original_is_there_or_not(served: ServedRun) -> None:
    original = served.folder.path
    copy = copied(original, original.with_name("copy"))
    taken = key_of(copy)
    assert taken not in ("", served.prepared.store_key), "nothing is shared"
    assert (key_of(copy), key_of(original)) == (taken, served.prepared.store_key)
    shutil.rmtree(original)
    assert key_of(copy) == taken


def test_a_copy_whose_weights_cannot_be_made_again_is_refused_beside_its_original(served: ServedRun) -> None:
    original = served.folder.path
    copy = copied(original, original.with_name("copy"))
    with pytest.raises(RunFolderError, match=rf"is a copy of {original}, .*: remove one of the two"):
        Run.open(RunFolder(copy)).store()
    assert key_of(original) == served.prepared.store_key


def test_nobody_else_can_read_the_key_of_which_all_draws_are_made(served: ServedRun) -> None:
    key = key_of(served.folder.path).encode()
    key_of(copied(served.folder.path, served.folder.path.with_name("copy")))
    files = [path for path in served.folder.path.parent.rglob("*") if path.is_file()]
    holding = [path for path in files if key in path.read_bytes()]
    assert {path.name for path in holding} == {"prepared.json", "store_claim.json"}
    assert [path for path in holding if path.stat().st_mode & 0o077] == []


def test_a_folder_that_is_moved_or_seen_by_another_path_keeps_its_weights(served: ServedRun, tmp_path: Path) -> None:
    key, original = served.prepared.store_key, served.folder.path
    moved = original.rename(tmp_path / "moved")
    assert key_of(moved) == key
    (tmp_path / "link").symlink_to(moved)
    assert key_of(tmp_path / "link") == key
    assert weights_of(moved)[0] == 2


def test_an_original_that_comes_back_finds_the_copy_at_work_and_shares_nothing(served: ServedRun) -> None:
    original = served.folder.path
    copy = copied(original, original.with_name("copy"))
    away = original.rename(original.with_name("away"))
    assert key_of(copy) != served.prepared.store_key
    assert key_of(away) == served.prepared.store_key


def test_another_machine_on_the_same_disk_has_the_same_weights(
    served: ServedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.run.store()
    monkeypatch.setattr("platform.node", lambda: "another")
    assert key_of(served.folder.path) == served.prepared.store_key


def test_weights_that_cannot_be_made_again_keep_their_key(served: ServedRun) -> None:
    original = served.folder.path
    copy = copied(original, original.with_name("copy"))
    shutil.rmtree(original)
    assert key_of(copy, may_restore=False) == served.prepared.store_key


@pytest.mark.parametrize("path", ["7", '"a\\u0000b"'])
def test_a_claim_on_what_is_no_path_ends_in_no_error_of_python(served: ServedRun, path: str) -> None:
    machine = json.dumps(platform.node())
    claim = f'{{"key": "k", "path": {path}, "directory": 1, "machine": {machine}}}'
    served.folder.store_claim_file.write_text(claim)
    if path == "7":
        with pytest.raises(RunFolderError, match=r"store_claim\.json is damaged"):
            key_of(served.folder.path)
    else:
        assert key_of(served.folder.path)
