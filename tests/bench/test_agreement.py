"""`python -m vcdl.bench.agreement`: a small run's subtasks, trained as different computers would."""

import sys
from pathlib import Path

import pytest

from tests.trained_run import TrainedRun
from vcdl.bench.agreement import FIRST, OTHERS, Computer, main, trained
from vcdl.checks.agreement import TOLERANCE
from vcdl.errors import RunFolderError
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run


def test_a_computer_rounds_as_its_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    environment = Computer(2, False).environment
    assert (environment["OMP_NUM_THREADS"], environment["TF_ENABLE_ONEDNN_OPTS"]) == ("2", "0")
    assert str(Computer(1, True)) == "1 thread, oneDNN on"
    assert str(Computer(2, False)) == "2 threads, oneDNN off"


@pytest.mark.nightly
def test_the_same_computer_agrees_to_the_last_bit_and_the_others_within_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = TrainedRun.new(tmp_path / "run").run
    monkeypatch.setattr(sys, "argv", ["agreement", str(run.folder.path), "--shards", "1"])
    main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["from", "shard", "1", "thread,", "oneDNN", "on,", "against", "trained", "rest"]
    assert len(lines) == 2 * len(OTHERS), "from the first and from the newest weights"
    measured = [(line.split(), str(other)) for other in OTHERS for line in lines if f" {other} " in line]
    again = [words for words, other in measured if other == str(FIRST)]
    assert again
    assert all(words[-2:] == ["0", "0"] for words in again)
    assert all(float(share) <= TOLERANCE / 1000 for words, _ in measured for share in words[-2:])


@pytest.mark.nightly
def test_a_client_that_fails_ends_it_with_the_reason(tmp_path: Path) -> None:
    run = Run.open(RunFolder.existing(TrainedRun.new(tmp_path / "run").run.folder.path))
    run.folder.shard(0).unlink()
    with pytest.raises(RunFolderError, match="the client failed: "):
        trained(run, [("first weights", 0)], FIRST, tmp_path / "first")
