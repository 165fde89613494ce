"""What can go wrong with the processes of a run does: nothing assimilated is lost, and nothing is applied twice."""

import signal
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import (
    applied,
    assert_every_shard_of_every_epoch_was_applied_once,
    children,
    kill,
    none_alive,
    summary,
    vcdl,
    vcdl_in_background,
    wait_until,
)
from tests.leftovers import leave_half
from tests.places import EXAMPLES
from vcdl.files.atomic import is_leftover

pytestmark = pytest.mark.process

EPOCHS, SHARDS = 40, 8
LONG = ["--set", f"stop.epochs={EPOCHS}", "--set", "stop.target_accuracy=null", "--set", f"data.shards={SHARDS}"]
"""Some three hundred subtasks, at most forty a second: time enough to interrupt them."""


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_after_ctrl_c_and_after_kill_9_of_everything_resume_goes_on(run_folder: Path) -> None:
    # Given a run that is under way
    first = vcdl_in_background("run", EXAMPLES / "digits.yaml", "--out", run_folder, *LONG)
    wait_until(lambda: len(applied(run_folder)) >= 3, "three updates were applied")
    family = children(first.pid)
    assert len(family) >= 3  # workers and evaluator

    # When a second run wants the same folder, it is refused
    refused = vcdl("resume", run_folder)
    assert refused.returncode == 6
    assert f"is being run by process {first.pid}" in refused.stderr

    # When Ctrl-C is pressed, it ends cleanly, says how to continue, and nothing is left running
    first.send_signal(signal.SIGINT)
    output, _ = first.communicate(timeout=60)
    assert first.returncode == 130, output
    assert "vcdl resume" in output
    wait_until(lambda: none_alive(family), "the children were gone")

    # When it is resumed and everything is killed by SIGKILL
    before = len(applied(run_folder))
    second = vcdl_in_background("resume", run_folder)
    wait_until(lambda: len(applied(run_folder)) >= before + 3, "the resumed run had applied updates")
    family = children(second.pid)
    for pid in [second.pid, *family]:
        kill(pid)
    second.communicate()
    wait_until(lambda: none_alive(family), "the children were gone")
    for name in ("prepared.json", "snapshots/params_v009999.h5", "data/shards/shard_000.npz"):
        leave_half(run_folder / name)  # as they may have

    # Then a resume finishes the job, with every shard of every epoch applied exactly once, and leaves no half of a file
    before = len(applied(run_folder))
    assert vcdl("resume", run_folder).returncode == 0
    assert [path for path in run_folder.rglob(".*") if is_leftover(path.name)] == []
    assert before < len(applied(run_folder))
    assert_every_shard_of_every_epoch_was_applied_once(run_folder, EPOCHS, SHARDS)
    assert summary(run_folder)["stop_reason"] == "epochs"
