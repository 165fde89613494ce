"""A hostile writer in a pool's folder gets no file of a pilot's user, nor one of the run's user, and stops neither."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pool.light_pilots import SIZE, TIMEOUT_S, Pool
from tests.served_run import ServedRun
from vcdl.errors import GridUnavailable
from vcdl.journal.events import WorkunitFailed, WorkunitSent
from vcdl.pool.mailboxes import PoolFolder
from vcdl.pool.messages import Assignment, Driver, Message
from vcdl.pool.pilot import Pilot

WORKUNIT = "served_e0001_s000_a0_v000000"
GOOD = {
    "model.json": "model.json",
    "params.h5": "snapshots/params_v000000.h5",
    "shard.npz": "data/shards/shard_000.npz",
}


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(ServedRun.new(tmp_path / "run", np.ones(SIZE, np.float32), ""), tmp_path)


@pytest.fixture
def folder(pool: Pool) -> PoolFolder:
    return PoolFolder.of(pool.served.folder.path)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's, with files that stay what they are."""
    (found := tmp_path / "home" / "mine").mkdir(parents=True)
    names = sorted(("a.json", "authorized_keys", "next.json", f"{WORKUNIT}.h5", "params.h5", "x.failed"))
    for name in names:
        (found / name).write_text("mine")
    yield found
    assert {path.name: path.read_text() for path in found.iterdir()} == dict.fromkeys(names, "mine")


def flown(pool: Pool, task: Any) -> Pilot:
    """A pilot that found a task on its desk, and did what it does about it."""
    pilot = pool.fly("a", busy=True)
    pilot.step(0)
    mailbox = PoolFolder.of(pool.served.folder.path).mailbox("a")
    (mailbox.path / "next.json").write_text(json.dumps(task))
    for _ in range(8):
        pool.clock.now_s += 5
        pilot.step(0)
    return pilot


@pytest.mark.parametrize(
    "name",
    ["../../home/mine/authorized_keys", "{mine}/authorized_keys", "{mine}/params.h5", "../../home/mine/params.h5",
     "a\0b", "x" * 5000, "", ".", "slot/../../../home/mine/next.json", "update.h5", "checkpoint.npz", "workunit.json"],
)  # fmt: skip
def test_a_task_names_no_file_out_of_the_slot(pool: Pool, folder: PoolFolder, mine: Path, name: str) -> None:
    pilot = flown(pool, {"workunit": WORKUNIT, "description": "{}", "files": {name.format(mine=mine): "model.json"}})
    assert "names a file that no subtask has" in (folder.mailbox("a").path / f"{WORKUNIT}.failed").read_text()
    assert not list(pilot.scratch.rglob("*.h5"))


@pytest.mark.parametrize(
    "path", ["../home/mine/params.h5", "{mine}/params.h5", "pool/desks/a/link", "journal.db", "a\0", "."]
)
def test_a_task_fetches_nothing_but_files_of_subtasks(pool: Pool, folder: PoolFolder, mine: Path, path: str) -> None:
    flown(pool, {"workunit": WORKUNIT, "description": "{}", "files": {"params.h5": path.format(mine=mine)}})
    assert "names a file that no subtask has" in (folder.mailbox("a").path / f"{WORKUNIT}.failed").read_text()


@pytest.mark.parametrize("workunit", ["../../../home/mine/x", "{mine}/x", "", "a\0", "x" * 300, f"{WORKUNIT}\n"])
def test_a_task_has_the_name_of_a_workunit(pool: Pool, folder: PoolFolder, mine: Path, workunit: str) -> None:
    pilot = flown(pool, {"workunit": workunit.format(mine=mine), "description": "{}", "files": {"x": "y"}})
    assert pilot._task is None
    assert not [
        path for path in folder.mailbox("a").path.iterdir() if path.suffix != ".json" and ".look" not in path.name
    ]


def test_a_file_is_bounded_in_size(pool: Pool, folder: PoolFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.pool.run_files.MOST_FILE_BYTES", 3 << 20)
    with pool.served.folder.shard(0).open("wb") as file:
        file.truncate(10**12)
    pilot = flown(pool, {"workunit": WORKUNIT, "description": "{}", "files": GOOD})
    assert "no file of a subtask is" in (folder.mailbox("a").path / f"{WORKUNIT}.failed").read_text()
    assert sum(path.stat().st_size for path in pilot.scratch.rglob("*") if path.is_file()) < 5 << 20


def test_messages_that_are_no_files_hold_nobody_up(pool: Pool, folder: PoolFolder) -> None:
    pilot = pool.fly("a", busy=True)
    pilot.step(0)
    mailbox = folder.mailbox("a").path
    for name in ("next.json", "taken.json", "drop.json"):
        (mailbox / name).unlink(missing_ok=True)
        os.mkfifo(mailbox / name)
    pool.clock.now_s += 5
    assert pilot.step(0)
    assert folder.mailbox("a").tasks() == []
    folder._driver.unlink()
    os.mkfifo(folder._driver)
    assert folder.read_driver() is None
    for name in ("b", "c"):  # a folder that cannot be removed does not stand in a later message's way
        (folder._heartbeats / f"{name}.json").mkdir()
        (folder._heartbeats / f"{name}.json" / "x").touch()
    folder.rung()
    folder.ring(Message("b", 1))
    assert [message.pilot for message in folder.rung()] == ["b"]


@pytest.mark.parametrize("bytes_down", [2**63, 2**62, 10**30])
def test_a_pilots_numbers_cannot_make_the_journal_unreadable(pool: Pool, folder: PoolFolder, bytes_down: int) -> None:
    """One message was enough: the run could not be taken up again. Nor could its state be kept, with a larger sum."""
    folder.mailbox("liar").make()
    for beat in range(5):
        workunit = folder.mailbox("liar").tasks()[0] if beat > 1 else ""
        folder.ring(Message("liar", beat, workunit, bytes_down=bytes_down if workunit else 0))
        pool.clock.now_s += 1
        pool.loop.step()
    pool.loop.generator.keep_state(at_once=True)
    assert not [row for row in pool.loop.journal.read() if isinstance(row.event, WorkunitSent)]


# -- what the run's own user must not do for a pilot


def test_a_bell_that_leads_elsewhere_is_not_emptied(folder: PoolFolder, mine: Path) -> None:
    folder._heartbeats.rename(folder.path / "aside")
    folder._heartbeats.symlink_to(mine)
    with pytest.raises(FileNotFoundError, match="is no folder"):
        folder.rung()


@pytest.mark.parametrize("which", ["desk", "desks"])
def test_a_desk_that_leads_elsewhere_is_not_touched(pool: Pool, folder: PoolFolder, mine: Path, which: str) -> None:
    pool.fly("mine")
    for _ in range(3):
        pool.step()
    link = folder.mailboxes if which == "desks" else folder.mailbox("mine").path
    link.rename(link.with_name("aside"))
    link.symlink_to(mine if which == "desk" else mine.parent)
    folder.ring(Message("mine", 10**6))
    for _ in range(3):
        pool.clock.now_s += 1
        pool.loop.step()
    with suppress(GridUnavailable):
        pool.start()  # which takes up what lies on desks
    pool.clock.now_s += TIMEOUT_S + 100
    pool.loop.step()


def test_a_notice_that_is_a_link_is_not_written_through(pool: Pool, folder: PoolFolder, mine: Path) -> None:
    folder._driver.unlink()
    folder._driver.symlink_to(mine / "authorized_keys")
    with pytest.raises(OSError, match="no regular file"):
        folder.write_driver(Driver("x", "m", 1, 1, "running", 60.0, 1.0))
    pool.clock.now_s += 5
    pool.loop.step()
    assert isinstance(pool.grid.shortage, GridUnavailable)


@pytest.mark.parametrize("suffix", ["h5", "failed"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "huge"])
def test_an_ending_that_is_no_file_is_a_failure(
    pool: Pool, folder: PoolFolder, mine: Path, suffix: str, kind: str
) -> None:
    pool.fly("a", busy=True)
    for _ in range(4):
        pool.step()
    workunit = folder.mailbox("a").tasks()[0]
    ending = folder.mailbox("a").path / f"{workunit}.{suffix}"
    match kind:
        case "link":
            ending.symlink_to(mine / "authorized_keys")
        case "pipe":
            os.mkfifo(ending)
        case "folder":
            ending.mkdir()
            (ending / "x").touch()
        case "huge":
            with ending.open("wb") as file:
                file.truncate(10**12)
    folder.ring(Message("a", 10**6, workunit))
    for _ in range(3):
        pool.clock.now_s += 1
        pool.loop.step()
    failed = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitFailed)]
    if (suffix, kind) == ("h5", "huge"):  # the check reads its beginning, and refuses it
        assert not failed
    else:
        assert [event.workunit for event in failed] == [workunit]
        assert kind == "huge" or "no regular file" in failed[0].reason
    assert not ending.exists()
    assert pool.grid.shortage is None


def test_names_on_desks_and_endings_are_those_of_workunits(pool: Pool, folder: PoolFolder) -> None:
    mailbox = folder.mailbox("a")
    mailbox.make()
    kept = sorted(pool.served.folder.snapshots.iterdir())
    raw = {"workunit": "../snapshots/params_v999999", "description": "{}", "files": {}}
    (mailbox.path / "taken.json").write_text(json.dumps(raw))
    (mailbox.path / "no workunit.h5").write_bytes(b"x")
    pool.start()
    pool.clock.now_s += TIMEOUT_S + 1
    for _ in range(3):
        pool.loop.step()
    assert sorted(pool.served.folder.snapshots.iterdir()) == kept
    assert not list(pool.served.folder.uploads.iterdir())
    assert not [row for row in pool.loop.journal.read() if "no workunit" in repr(row.event)]


def test_a_temporary_name_that_is_a_link_is_not_written_through(
    folder: PoolFolder, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = folder.mailbox("a")
    mailbox.make()
    planted = mailbox.path / f".next.{os.getpid()}.tmp.json"
    unlink = Path.unlink

    def planting(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if path == planted and not planted.is_symlink():
            planted.symlink_to(mine / "authorized_keys")

    monkeypatch.setattr(Path, "unlink", planting)
    with pytest.raises(FileExistsError):
        mailbox.give(Assignment(WORKUNIT, "{}", {}))
