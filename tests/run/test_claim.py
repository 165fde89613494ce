"""Folders of runs whose weights lie elsewhere: moved, copied, restored, cloned, and killed in the middle of it."""

import json
import os
import platform
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.served_run import ServedRun, noise
from vcdl.errors import RunFolderError
from vcdl.files.atomic import is_leftover
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run import clone
from vcdl.run.clone import clone_run
from vcdl.run.finding import chosen_run
from vcdl.run.folder import RunFolder, RunIsBusy, RunLock
from vcdl.run.run import Run
from vcdl.run.store_claim import Claim, claimed_key
from vcdl.wire.weights import Vector

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
    return claimed_key(run.folder, run.prepared, may_restore=may_restore)


def weights_of(path: Path) -> tuple[int, Vector]:
    run = Run.open(RunFolder(path))
    server = ParameterServer.of(run, run.journal(), UploadFolder(run.folder))
    server.catch_up()
    return server.store.read()


def copied(path: Path, new: Path) -> Path:
    """As `cp -a` does."""
    return Path(shutil.copytree(path, new))


def test_a_copy_is_refused_as_long_as_its_original_is_there_and_told_what_to_do(served: ServedRun) -> None:
    original = served.folder.path
    copy = copied(original, original.with_name("copy"))
    with pytest.raises(RunFolderError, match=rf"is a copy of {original}, .*`vcdl clone {original} NEW`"):
        Run.open(RunFolder(copy)).store()
    assert key_of(original) == served.prepared.store_key
    shutil.rmtree(original)
    taken = key_of(copy)
    assert taken not in ("", served.prepared.store_key), "should the original come back, nothing is shared"
    assert key_of(copy) == taken


def test_nobody_else_can_read_the_key_of_which_all_draws_are_made(served: ServedRun) -> None:
    key = key_of(served.folder.path).encode()
    clone_run(served.run, served.folder.path.with_name("clone"))
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


def test_a_damaged_claim_is_named(served: ServedRun) -> None:
    served.folder.store_claim_file.write_text("{")
    with pytest.raises(RunFolderError, match=r"store_claim\.json is damaged"):
        served.run.store()


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


def test_a_clone_has_the_same_journal_files_and_weights_and_shares_nothing(served: ServedRun, tmp_path: Path) -> None:
    folder = clone_run(served.run, tmp_path / "runs" / "clone")
    assert key_of(folder.path) != key_of(served.folder.path)
    version, weights = weights_of(folder.path)
    assert (version, weights.tobytes()) == (2, served.replayed().tobytes())
    events = [row.event for row in served.run.journal().read()]
    assert [row.event for row in Run.open(folder).journal().read()][: len(events)] == events
    served.bring(2, noise(9, SIZE))
    ParameterServer.of(served.run, served.run.journal(), UploadFolder(served.folder)).run_once()
    assert weights_of(folder.path)[0] == 2
    assert weights_of(served.folder.path)[0] == 3
    with pytest.raises(RunFolderError, match="is not empty"):
        clone_run(served.run, folder.path)


def test_a_run_that_is_under_way_is_not_cloned(served: ServedRun, tmp_path: Path) -> None:
    with RunLock(served.folder), pytest.raises(RunIsBusy):
        clone_run(served.run, tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_a_clone_that_is_killed_is_no_run_and_the_next_one_takes_its_rest_away(
    served: ServedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    half = copied(served.folder.path, runs / ".clone.4194305.tmp")
    os.utime(half / "job.yaml", (2e9, 2e9))
    assert is_leftover(half.name)
    assert chosen_run(None).path == served.folder.path

    def killed(_: RunFolder, __: RunFolder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(clone, "_copy_journal", killed)
        with pytest.raises(KeyboardInterrupt):
            clone_run(served.run, runs / "clone")
    assert [path.name for path in runs.iterdir()] == ["run"]
    clone_run(served.run, runs / "clone")
    assert sorted(path.name for path in runs.iterdir()) == ["clone", "run"]


def test_the_claim_of_a_clone_names_the_place_where_it_will_lie(served: ServedRun, tmp_path: Path) -> None:
    folder = clone_run(served.run, tmp_path / "clone")
    written = Claim.of(folder, key_of(folder.path))
    assert written == replace(written, path=str(tmp_path / "clone"))
    np.testing.assert_array_equal(weights_of(folder.path)[1], served.replayed())
