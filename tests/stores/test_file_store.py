"""The file store under what happens to files: kill -9, half a line, a full disk, a folder that is not ours."""

import json
import os
import random
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.leftovers import ended_pid, temporary_of
from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.rules.state import RuleState
from vcdl.stores import Applied, FileStore, Fold
from vcdl.stores.commit_log import CommitLog
from vcdl.stores.slots import WeightSlots
from vcdl.testing.folds import changing, subtask
from vcdl.wire.checksum import checksum_of
from vcdl.wire.layout import Vector

SIZE = 200_000
"""Weights: most of a transaction is spent in the middle of them."""
NOBODY = 65534


def fold(number: int) -> Fold:
    return changing(subtask(number), lambda w, _: change(w, number))


def change(w: Vector, number: int) -> float:
    w *= np.float32(0.75)
    w += np.float32(number)
    return 0.25


def replayed(version: int, size: int = SIZE) -> Vector:
    """The weights after the first `version` of those folds."""
    one = np.ones(1, np.float32)
    for number in range(version):
        change(one, number)
    return np.full(size, one[0], np.float32)


def new_store(folder: Path, size: int = SIZE) -> FileStore:
    store = FileStore(folder, size)
    store.create(np.ones(size, np.float32))
    return store


def check(folder: Path, at_least: int) -> int:
    """Version, vector and records of the store agree with a replay; returns the version."""
    store = FileStore(folder, SIZE)
    version, vector = store.read()
    assert version >= at_least
    assert vector.tobytes() == replayed(version).tobytes()
    records = store.fold([fold(number) for number in range(version)])
    assert [record.version for record in records] == list(range(1, version + 1)), "every update is known to the store"
    assert store.version() == version
    return version


def in_a_child(work: Callable[[], str]) -> str:
    """Run `work` in a forked process, which may give its rights or its disk away; returns what it said."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(process, 0)
    return said


# -- killed


def fold_for_ever(folder: Path, report: int) -> None:
    """One to three folds a transaction, each transaction reported once it is committed."""
    store = FileStore(folder, SIZE)
    version = store.version()
    while True:
        store.fold([fold(version + step) for step in range(version % 3 + 1)])
        version = store.version()
        os.write(report, b"%d\n" % version)


def killed_after(folder: Path, seconds: float) -> list[int]:
    """Let a process fold into the store and kill it; returns the versions it reported."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            fold_for_ever(folder, write)
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    with os.fdopen(read) as pipe:
        reported = [int(line) for line in pipe]
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    return reported


@pytest.mark.process
def test_kill_9_in_the_middle_of_transactions_leaves_whole_versions(tmp_path: Path) -> None:
    new_store(tmp_path / "store").close()
    dice = random.Random(1)
    version = 0
    for _ in range(60):
        reported = killed_after(tmp_path / "store", dice.uniform(0.005, 0.03))
        version = check(tmp_path / "store", at_least=max([version, *reported]))
    assert version > 60


def log_of(folder: Path) -> bytes:
    return (folder / "commits.log").read_bytes()


def test_cut_anywhere_in_its_last_line_the_store_stands_at_the_version_before(tmp_path: Path) -> None:
    store = new_store(tmp_path, 4)
    store.fold([fold(0)])
    whole = len(log_of(tmp_path))
    store.fold([fold(1)])
    log = log_of(tmp_path)
    for end in range(whole, len(log)):
        (tmp_path / "commits.log").write_bytes(log[:end])
        version, vector = FileStore(tmp_path, 4).read()
        assert version == 1
        assert vector.tobytes() == replayed(1, 4).tobytes()


@pytest.mark.parametrize("rest", [b"9", b"01234567 ", b'deadbeef {"version": 2', b"\x00" * 100, b"garbage\n"])
def test_half_a_line_is_cut_off_by_the_next_writer(tmp_path: Path, rest: bytes) -> None:
    store = new_store(tmp_path, 4)
    store.fold([fold(0)])
    with (tmp_path / "commits.log").open("ab") as log:
        log.write(rest)
    assert store.version() == 1
    again = FileStore(tmp_path, 4)
    again.fold([fold(1)])
    assert len(log_of(tmp_path).splitlines()) == 3
    for opened in (store, again, FileStore(tmp_path, 4)):
        version, vector = opened.read()
        assert version == 2
        assert vector.tobytes() == replayed(2, 4).tobytes()


def test_a_half_written_slot_is_never_read(tmp_path: Path) -> None:
    store = new_store(tmp_path, 4)
    for number in range(3):
        store.fold([fold(number)])
    newest = json.loads(log_of(tmp_path).splitlines()[-1].partition(b" ")[2])["slot"]
    with WeightSlots(tmp_path / "weights.bin", 4).opened() as slots:  # a transaction that was killed before its commit
        slots.write(1 - newest, 0, np.full(3, np.nan, np.float32))
    again = FileStore(tmp_path, 4)
    assert again.read()[1].tobytes() == replayed(3, 4).tobytes()
    again.fold([fold(3)])
    assert again.read()[1].tobytes() == replayed(4, 4).tobytes()


@pytest.mark.process
@pytest.mark.parametrize("left", ["weights.bin", "commits.log"])
def test_a_store_whose_making_was_killed_is_made_again(tmp_path: Path, left: str) -> None:
    new_store(tmp_path / "whole", 4)
    half = tmp_path / "half"
    half.mkdir()
    path = half / left
    if left == "commits.log":
        path = temporary_of(ended_pid(), path)
    path.write_bytes(b"\x01\x02\x03")
    assert new_store(half, 4).read()[1].tolist() == [1, 1, 1, 1]
    assert sorted(path.name for path in half.iterdir()) == ["commits.log", "lock", "weights.bin"]


def test_a_damaged_line_with_others_behind_it_is_no_kill_but_a_broken_disk(tmp_path: Path) -> None:
    store = new_store(tmp_path, 4)
    records = [store.fold([fold(number)])[0] for number in range(3)]
    lines = log_of(tmp_path).splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"version": 2', b'"version": 7')
    (tmp_path / "commits.log").write_bytes(b"".join(lines))
    before = log_of(tmp_path)
    again = FileStore(tmp_path, 4)
    with pytest.raises(StoreLost, match="after version 1 is unreadable"):
        again.fold([fold(3)])
    assert log_of(tmp_path) == before, "nothing is cut off"
    assert again.restore(3, replayed(3, 4), records)
    for one in (again, store, FileStore(tmp_path, 4)):
        assert one.read()[1].tobytes() == replayed(3, 4).tobytes()
        assert one.fold([fold(1)]) == [records[1]]
    assert store.fold([fold(3)])[0].version == 4


@pytest.mark.process
def test_killed_while_a_damaged_store_is_made_again_there_is_none(tmp_path: Path) -> None:
    """A half-made one would have weights that nobody has put there."""
    new_store(tmp_path, 4).fold([fold(0)])
    (tmp_path / "commits.log").write_bytes(b"damaged\n" + log_of(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CommitLog, "make", _killed)
        with pytest.raises(KeyboardInterrupt):
            FileStore(tmp_path, 4).restore(7, replayed(3, 4), [])
    with pytest.raises(StoreLost):
        FileStore(tmp_path, 4).version()
    assert FileStore(tmp_path, 4).restore(7, replayed(3, 4), [])
    assert FileStore(tmp_path, 4).version() == 7


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


# -- the disk


@pytest.mark.process
def test_a_real_disk_fills_up_and_is_freed_again(small_disk: Path) -> None:
    store = new_store(small_disk / "store", 100)
    (small_disk / "other").write_bytes(b"x" * 230_000)
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        list(map(store.fold, ([fold(number)] for number in range(10_000))))
    version = store.version()
    assert 10 < version < 10_000
    reopened = FileStore(small_disk / "store", 100)
    assert reopened.read()[0] == version
    assert reopened.read()[1].tobytes() == replayed(version, 100).tobytes()
    (small_disk / "other").unlink()
    store.fold([fold(version)])
    assert reopened.read()[1].tobytes() == replayed(version + 1, 100).tobytes()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder whose parents everybody may pass."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)
        os.chmod(path, 0o755)


def without_rights(folder: Path, work: Callable[[], object]) -> str:
    """The words of `work` in a process that may read the folder and write nothing in it."""

    def powerless() -> str:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        else:
            for path in (*folder.rglob("*"), folder):
                path.chmod(0o555 if path.is_dir() else 0o444)
        return str(work())

    return in_a_child(powerless)


@pytest.mark.process
def test_a_folder_that_may_not_be_written_is_said(public_folder: Path) -> None:
    folder = public_folder / "store"
    new_store(folder, 4)
    for said in (
        without_rights(public_folder, lambda: FileStore(folder, 4).version()),
        without_rights(public_folder, lambda: FileStore(folder, 4).fold([fold(0)])),
        without_rights(public_folder, lambda: new_store(public_folder / "other", 4)),
    ):
        assert said.startswith("StoreError: cannot "), said
        assert "Permission denied; correct the permissions, then `vcdl resume`" in said
    assert not (public_folder / "other").exists()


# -- a folder that is not ours


def test_a_store_of_another_model_is_refused(tmp_path: Path) -> None:
    new_store(tmp_path, 4)
    for read in (FileStore(tmp_path, 5).read, lambda: FileStore(tmp_path, 5).fold([fold(0)])):
        with pytest.raises(StoreError, match="has 32 bytes, but this model needs 40"):
            read()
    with pytest.raises(StoreError, match="4 weights for a store of 5"):
        FileStore(tmp_path / "new", 5).create(np.ones(4, np.float32))


@pytest.mark.parametrize("gone", ["", "weights.bin", "commits.log"])
def test_weights_that_were_deleted_are_lost_and_are_restored_for_everybody_who_has_the_store_open(
    tmp_path: Path, gone: str
) -> None:
    ours, another = new_store(tmp_path / "store", 4), FileStore(tmp_path / "store", 4)
    ours.fold([fold(number) for number in range(3)])
    another.read()
    deleted = tmp_path / "store" / gone
    if gone:
        deleted.unlink()
    else:
        shutil.rmtree(deleted)
    for read in (ours.read, another.read_whole, FileStore(tmp_path / "store", 4).read):
        with pytest.raises(StoreLost, match=r"is missing"):
            read()
    record = Applied(subtask(0), "workunit", 2, 0, 0.5)
    ours.restore(2, replayed(2, 4), [record])
    for store in (ours, another):
        assert store.version() == 2
        assert store.read()[1].tobytes() == replayed(2, 4).tobytes()
        assert [found.version for found in store.fold([fold(0)])] == [2], "its record was restored, too"


# -- the format


def test_each_line_of_the_log_is_a_checksum_and_what_was_committed(tmp_path: Path) -> None:
    store = new_store(tmp_path, 4)
    store.fold([fold(0), fold(1)])
    first, second = log_of(tmp_path).splitlines(keepends=True)
    for line in (first, second):
        checksum, _, body = line.partition(b" ")
        assert int(checksum, 16) == zlib.crc32(body)
    checksums = [checksum_of(np.ones(4, np.float32)), checksum_of(np.ones(0, np.float32))]
    assert json.loads(first[9:]) == {"version": 0, "slot": 0, "checksums": checksums, "applied": []}
    commit = json.loads(second[9:])
    assert (commit["version"], commit["slot"]) == (2, 1)
    assert [record["subtask"] for record in commit["applied"]] == ["e0001_s000", "e0001_s001"]


@pytest.mark.parametrize("number", [0, 3])
def test_a_block_that_the_disk_lost_is_found_by_whoever_reads_it(tmp_path: Path, number: int) -> None:
    """Neither read nor folded into, nor committed; the store that is made again is whole."""
    store = new_store(tmp_path / "store")
    store.fold([fold(one) for one in range(number)])
    slot = store._log.slot
    with (tmp_path / "store" / "weights.bin").open("r+b") as file:
        file.seek(4 * (slot * SIZE + 1000))
        file.write(bytes(4096))
    for read in (
        store.read,
        store.read_whole,
        lambda: store.fold([fold(number)]),
        FileStore(tmp_path / "store", SIZE).read,
    ):
        with pytest.raises(StoreLost, match=rf"version {number} in .* is damaged"):
            read()
    records = [Applied(subtask(one), subtask(one), one + 1, one, 0.25) for one in range(number)]
    store.restore(number, replayed(number), records)
    check(tmp_path / "store", at_least=number)


def test_what_a_rule_keeps_beside_the_weights_is_held_to_its_checksum(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", SIZE, RuleState(vectors=1))
    store.create(np.ones(SIZE, np.float32))
    with (tmp_path / "store" / "weights.bin").open("r+b") as file:
        file.seek(4 * (SIZE + 1000))
        file.write(b"\1" * 512)
    assert store.read()[0] == 0, "the weights themselves are whole"
    with pytest.raises(StoreLost, match="is damaged"):
        store.read_whole()
    with pytest.raises(StoreLost, match="is damaged"):
        store.fold([fold(0)])
