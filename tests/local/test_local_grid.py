"""The local grid against workers that finish, fail, die, hang and mumble; a stand-in for the client does as its
shard says.
"""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vcdl.errors import GridError
from vcdl.journal.events import WorkunitSent
from vcdl.local.grid import LocalGrid, LocalSettings
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded
from vcdl.wire.workunit import INPUT_FILES, Named, Training, Workunit

pytestmark = pytest.mark.process

STAND_IN = """
import json, os, sys, time
from pathlib import Path

def tell(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)

if Path("broken").exists():
    sys.exit(3)
tell("ready")
busy = None
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "quit":
        if busy:
            (busy / "checkpoint").touch()
            busy = None
            tell("quit")
        continue
    busy = Path(command["folder"])
    do = (busy / "shard.npz").read_text()
    if do == "die":
        os._exit(7)
    if do == "die after work":
        (busy / "update.h5").write_text("weights")
        tell("done")
        os._exit(7)
    if do == "deaf":
        time.sleep(1000)
    if do == "fail":
        tell("failed", reason="the loss is not a number")
        busy = None
    if do == "no room" and not (busy / "checkpoint").exists():
        (busy / "checkpoint").touch()
        tell("no_room")
        busy = None
        continue
    if do == "nothing":
        tell("done")
        busy = None
    if do == "half":
        tell("progress", fraction=0.5, samples=50)
    if do in ("work", "no room") or (do == "half" and (busy / "checkpoint").exists()):
        (busy / "update.h5").write_text(" ".join(sorted(path.name for path in busy.iterdir())))
        tell("done")
        busy = None
"""

TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))

NewGrid = Callable[..., LocalGrid]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.model_file.write_text("{}")
    folder.snapshot(0).write_text("weights")
    return folder


@pytest.fixture
def new_grid(tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewGrid]:
    """Starts grids whose workers are the stand-in: `python -m vcdl.client.worker` finds it in PYTHONPATH first."""
    package = tmp_path / "here" / "vcdl" / "client"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "worker.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path / "here")  # where it looks for notes of the tests
    grids: list[LocalGrid] = []

    def start(workers: int = 1, timeout_s: float = 60.0, ahead: int = 0, hands_out_uploads: bool = True) -> LocalGrid:
        settings = LocalSettings(workers, 1, ahead, timeout_s, hands_out_uploads=hands_out_uploads)
        grids.append(LocalGrid(folder, settings))
        grids[-1].start()
        return grids[-1]

    yield start
    for grid in grids:
        grid.close()


def staged(folder: RunFolder, shard: int, do: str, attempt: int = 0) -> Staged:
    path = folder.path / "data" / f"{do}.npz"
    path.write_text(do)
    workunit = Workunit(job="j", epoch=1, shard=shard, attempt=attempt, base_version=0, seed=7, training=TRAINING)
    return Staged(workunit, folder.model_file, folder.snapshot(0), path)


def outcomes(grid: LocalGrid, count: int, within_s: float = 20.0) -> list[Outcome]:
    """Wait for as many outcomes; they are not done."""
    end_s = time.monotonic() + within_s
    while len(claimed := grid.claim()) < count:
        assert time.monotonic() < end_s, f"{len(claimed)} of {count} outcomes"
        grid.wait(0.05)
    return claimed


def wait_until(grid: LocalGrid, condition: Callable[[], object], within_s: float = 20.0) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        grid.wait(0.05)


def pids(grid: LocalGrid) -> list[int]:
    return [worker.process.pid for worker in grid._workers]


def test_a_subtask_is_trained_in_a_folder_of_just_its_files_and_comes_back(
    new_grid: NewGrid, folder: RunFolder
) -> None:
    grid = new_grid()
    item = staged(folder, 0, "work")
    grid.submit([item])
    assert grid.has(item.workunit.name)
    (upload,) = outcomes(grid, 1)
    assert isinstance(upload, Uploaded)
    assert upload.path == folder.uploads / f"{item.workunit.name}.h5"
    assert upload.size_bytes == upload.path.stat().st_size
    assert upload.path.read_text().split() == sorted(INPUT_FILES)
    assert [upload.host] == [sent.host for sent in grid.sent()]
    assert list(folder.slots.iterdir()) == []
    assert grid.claim() == [upload], "until it is done"
    grid.done(item.workunit.name)
    assert grid.claim() == []
    assert not grid.has(item.workunit.name)
    assert list(folder.uploads.iterdir()) == []


def test_what_a_worker_downloads_is_counted_once_a_file_it_keeps(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid()
    first, again = staged(folder, 0, "work"), staged(folder, 1, "work")
    grid.submit([first, again])
    outcomes(grid, 2)
    sent = grid.sent()
    assert [(event.workunit, event.host) for event in sent] == [
        (first.workunit.name, "worker-1"),
        (again.workunit.name, "worker-1"),
    ]
    assert all(isinstance(event, WorkunitSent) for event in sent)
    model_and_shard = folder.model_file.stat().st_size + first.shard.stat().st_size
    assert sent[0].bytes_down - sent[1].bytes_down == model_and_shard
    assert grid.sent() == []


def test_frozen_weights_are_in_the_slot_and_counted_once_a_worker(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid()
    folder.frozen_file.write_bytes(b"frozen" * 1000)
    items = [replace(staged(folder, shard, "work"), frozen=folder.frozen_file) for shard in (0, 1)]
    grid.submit(items)
    first, _ = outcomes(grid, 2)
    assert isinstance(first, Uploaded)
    assert "frozen.h5" in first.path.read_text().split()
    sent = grid.sent()
    assert sent[0].bytes_down - sent[1].bytes_down > 6000


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("fail", "the loss is not a number"),
        ("die", r"its worker died (exit status 7)"),
        ("nothing", "its update.h5 cannot be moved: [Errno 2] No such file or directory"),
    ],
)
def test_a_subtask_that_fails_is_given_up_and_the_worker_or_its_successor_goes_on(
    new_grid: NewGrid, folder: RunFolder, do: str, reason: str
) -> None:
    grid = new_grid()
    bad, good = staged(folder, 0, do), staged(folder, 1, "work")
    grid.submit([bad, good])
    gave_up, upload = outcomes(grid, 2)
    assert isinstance(gave_up, GaveUp)
    assert gave_up.workunit == bad.workunit.name
    assert gave_up.reason.startswith(reason)
    assert isinstance(upload, Uploaded)
    assert len(pids(grid)) == 1


def test_a_worker_that_dies_after_its_work_has_done_its_work(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid()
    first = pids(grid)
    grid.submit([staged(folder, 0, "die after work")])
    (upload,) = outcomes(grid, 1)
    assert isinstance(upload, Uploaded)
    assert upload.path.read_text() == "weights"
    wait_until(grid, lambda: pids(grid) != first)
    assert grid.claim() == [upload]


def test_kill_9_of_a_worker_costs_its_subtask_and_no_other(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid(workers=2)
    grid.submit([staged(folder, 0, "half"), staged(folder, 1, "half")])
    wait_until(grid, lambda: sum(task.fraction for task in grid.running()) == 1.0)
    victim = grid.running()[0]
    os.kill(pids(grid)[0], signal.SIGKILL)
    (gave_up,) = outcomes(grid, 1)
    assert isinstance(gave_up, GaveUp)
    assert gave_up.workunit == victim.workunit
    assert gave_up.reason.startswith("its worker died (killed by signal 9, as Linux does when memory runs out")
    assert [task.workunit for task in grid.running()] != [victim.workunit]
    assert len(grid.running()) == 1
    assert len(set(pids(grid))) == 2


def test_a_worker_that_hangs_is_killed_when_its_time_is_over(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid(timeout_s=0.5)
    grid.submit([staged(folder, 0, "deaf")])
    (gave_up,) = outcomes(grid, 1)
    assert isinstance(gave_up, GaveUp)
    assert gave_up.reason == "no result after 0.5 s (grid > timeout_s)"
    grid.submit([staged(folder, 1, "work")])
    assert isinstance(outcomes(grid, 2)[1], Uploaded)


def test_workers_that_never_get_ready_end_the_run_with_a_hint(new_grid: NewGrid, tmp_path: Path) -> None:
    (tmp_path / "here" / "broken").touch()
    grid = new_grid(workers=2)
    with pytest.raises(GridError, match=r"died before they were ready \(the last with exit status 3\): .*workers.log"):
        wait_until(grid, lambda: False)


def test_a_cancelled_subtask_is_stopped_and_forgotten_and_its_worker_is_free(
    new_grid: NewGrid, folder: RunFolder
) -> None:
    grid = new_grid()
    running, waiting = staged(folder, 0, "half"), staged(folder, 1, "work")
    grid.submit([running, waiting])
    wait_until(grid, lambda: [task.fraction for task in grid.running()] == [0.5])
    grid.cancel({running.workunit.name, waiting.workunit.name})
    assert not grid.has(running.workunit.name)
    wait_until(grid, lambda: not grid.running())
    assert list(folder.slots.iterdir()) == []
    assert grid.claim() == []
    grid.submit([staged(folder, 2, "work")])
    assert isinstance(outcomes(grid, 1)[0], Uploaded)


def test_an_upload_that_waits_is_handed_out_by_the_next_grid(new_grid: NewGrid, folder: RunFolder) -> None:
    first = new_grid()
    item = staged(folder, 0, "work")
    first.submit([item])
    (upload,) = outcomes(first, 1)
    second = new_grid()
    assert isinstance(upload, Uploaded)
    assert second.claim() == [replace(upload, host="")], "the journal knows who had it"
    assert second.has(item.workunit.name)


def test_a_pause_leaves_checkpoints_from_which_the_next_grid_goes_on(new_grid: NewGrid, folder: RunFolder) -> None:
    first = new_grid(workers=2)
    items = [staged(folder, shard, "half") for shard in range(2)]
    first.submit([*items, staged(folder, 2, "work")])
    wait_until(first, lambda: sum(task.fraction for task in first.running()) == 1.0)
    first.pause()
    assert first.running() == []
    assert first.waiting == 0
    for item in items:
        assert (folder.slots / item.workunit.name / "checkpoint").exists()
    second = new_grid(workers=2)
    second.submit(items)
    assert all(
        "checkpoint" in upload.path.read_text() for upload in outcomes(second, 2) if isinstance(upload, Uploaded)
    )


def test_a_command_to_a_worker_that_has_just_died_is_dropped(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid()
    wait_until(grid, lambda: grid._workers[0].ready)
    worker = grid._workers[0]
    worker.process.kill()
    worker.process.wait()
    grid.submit([staged(folder, 0, "work")])
    (gave_up,) = outcomes(grid, 1)
    assert isinstance(gave_up, GaveUp)
    assert gave_up.workunit == "j_e0001_s000_a0_v000000"
    assert gave_up.reason.startswith("its worker died (killed by signal 9, ")
    assert pids(grid) != [worker.process.pid]


# -- a full disk


def test_a_subtask_that_finds_the_disk_full_is_handed_out_again_and_goes_on_from_its_checkpoint(
    new_grid: NewGrid, folder: RunFolder
) -> None:
    grid = new_grid()
    grid.submit([staged(folder, 0, "no room"), staged(folder, 1, "work")])
    wait_until(grid, lambda: grid.shortage)
    assert "No space left on device" in str(grid.shortage)
    assert grid.waiting == 2
    first, second = outcomes(grid, 2)
    assert isinstance(first, Uploaded)
    assert isinstance(second, Uploaded)
    assert "checkpoint" in first.path.read_text().split(), "it was the same slot"
    assert grid.shortage is None
    assert not list(folder.slots.iterdir())


def test_nothing_is_handed_out_until_an_update_would_fit(
    new_grid: NewGrid, folder: RunFolder, small_disk: Path
) -> None:
    for part in (folder.slots, folder.uploads):
        part.rmdir()
        (small_disk / part.name).mkdir()
        part.symlink_to(small_disk / part.name)
    folder.snapshot(0).write_bytes(b"x" * 30_000)  # of which a slot gets a copy, as it is on another disk
    (small_disk / "other").write_bytes(b"x" * 240_000)
    grid = new_grid(workers=2)
    grid.submit([staged(folder, shard, "work") for shard in range(3)])
    wait_until(grid, lambda: grid.shortage)
    for _ in range(10):
        grid.wait(0.05)
    assert (grid.claim(), grid.running(), grid.waiting, grid.sent()) == ([], [], 3, [])
    (small_disk / "other").unlink()
    assert [type(outcome) for outcome in outcomes(grid, 3)] == [Uploaded] * 3
    assert len(grid.sent()) == 3


def test_an_update_that_cannot_be_moved_on_a_full_disk_is_not_lost(
    new_grid: NewGrid, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[Path] = []
    replace = Path.replace

    def first_fails(self: Path, target: Path) -> Path:
        if target.parent == folder.uploads:
            moves.append(self)
            if len(moves) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", first_fails)
    grid = new_grid()
    grid.submit([staged(folder, 0, "work")])
    (outcome,) = outcomes(grid, 1)
    assert isinstance(outcome, Uploaded)
    assert "update.h5" in outcome.path.read_text().split(), "it lay in the slot when the client came back"


@pytest.mark.parametrize("name", ["slots", "uploads"])
def test_a_deleted_folder_of_the_grid_is_made_again(new_grid: NewGrid, folder: RunFolder, name: str) -> None:
    grid = new_grid()
    shutil.rmtree(folder.path / name)
    grid.submit([staged(folder, 0, "work")])
    (upload,) = outcomes(grid, 1)
    assert isinstance(upload, Uploaded)
    assert upload.path.is_file()


def test_an_upload_that_was_deleted_before_a_server_took_it_is_given_up(new_grid: NewGrid, folder: RunFolder) -> None:
    grid = new_grid(hands_out_uploads=False)
    items = [staged(folder, shard, "work") for shard in range(3)]
    names = [item.workunit.name for item in items]
    grid.submit(items[:2])
    wait_until(grid, lambda: len(folder.waiting_uploads()) == 2)
    grid.submit([replace(items[2], shard=staged(folder, 2, "deaf").shard)])
    assert grid.missing_uploads(names) == set()
    (folder.uploads / f"{names[0]}.h5").unlink()
    assert grid.missing_uploads(names) == {names[0]}, "one is still trained"
    grid.lose([names[0]])
    assert grid.claim() == [GaveUp(names[0], f"its upload was deleted from {folder.uploads}")]
    assert grid.missing_uploads(names) == set()


def test_a_wall_clock_that_is_set_times_nothing_out(
    new_grid: NewGrid, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = new_grid(timeout_s=600.0)
    grid.submit([staged(folder, 0, "half")])
    wait_until(grid, lambda: [task.fraction for task in grid.running()] == [0.5])
    now_s = time.time()
    for jump_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: now_s + jump_s)
        grid.wait(0.01)
    assert grid.claim() == []
