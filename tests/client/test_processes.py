"""Real client processes: killed, stopped by hand, spoken to over a pipe, run on each backend that is installed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.boinc_side import TIMEOUT_S, processor_s, wait_for
from tests.client.workunit_folder import (
    SAMPLES,
    ScriptedSupervisor,
    batches_seen,
    read_update,
    with_training,
    write_workunit,
)
from tests.places import ROOT
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.train import train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.errors import ExitCode

pytestmark = [pytest.mark.process, pytest.mark.keras]


def start(*arguments: str | Path, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *map(str, arguments)], cwd=ROOT, text=True, **options)


def test_a_client_killed_in_mid_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    workunit = with_training(local_epochs=4)
    folder = write_workunit(tmp_path / "killed", workunit)
    log, checkpoint = tmp_path / "log", folder / CHECKPOINT_FILE
    first = start("-m", "tests.client.recording_client", folder, log)
    wait_for(checkpoint.exists, lambda: first.poll() is None)
    written = len(batches_seen(log))
    wait_for(lambda: len(batches_seen(log)) > written + 10, lambda: first.poll() is None)
    first.kill()
    first.wait()
    begun = batches_seen(log)
    with np.load(checkpoint) as file:
        kept = json.loads(file["header"].tobytes())["position"]["samples"]
    assert 0 < kept < 4 * SAMPLES
    assert not (folder / "update.h5").exists()

    second = start("-m", "tests.client.recording_client", folder, log)
    assert second.wait(TIMEOUT_S) == 0
    after = batches_seen(log)[len(begun) :]
    seen = np.concatenate([np.concatenate(begun)[:kept], *after]).reshape(4, SAMPLES)
    np.testing.assert_array_equal(np.sort(seen, axis=1), np.tile(np.arange(SAMPLES), (4, 1)))

    undisturbed = write_workunit(tmp_path / "undisturbed", workunit)
    train_workunit(undisturbed, ScriptedSupervisor(), TrainerCache())
    (weights, header), (expected, expected_header) = read_update(folder), read_update(undisturbed)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)
    assert header.loss == pytest.approx(expected_header.loss, rel=1e-5)
    assert (header.samples, header.fraction) == (4 * SAMPLES, 1.0)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in undisturbed.iterdir())


@pytest.mark.nightly
def test_by_hand_ctrl_c_stops_with_a_checkpoint_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = write_workunit(tmp_path / "slot", with_training(local_epochs=60))
    command = ("-m", "vcdl.client", folder)
    process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert "%" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.INTERRUPTED, errors
    assert "the same command resumes from here" in said
    assert "Traceback" not in errors
    assert (folder / CHECKPOINT_FILE).exists()

    process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.OK, errors
    assert "100.0%  update.h5 is written" in said
    assert read_update(folder)[1].samples == 60 * SAMPLES


class Worker:
    """The parent's side of a worker process."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors.open("w")
        self.process = start(
            "-m", "vcdl.client.worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def say(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def hear_end(self) -> dict[str, Any]:
        """The next event that is not progress."""
        while (event := self.hear())["event"] == "progress":
            assert 0 < event["fraction"] <= 1
        return event

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(10)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(tmp_path_factory.mktemp("worker") / "stderr")
    assert worker.hear() == {"event": "ready"}
    yield worker
    worker.process.kill()
    worker.process.wait()


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A workunit that takes hours."""
    return write_workunit(tmp_path / "endless", with_training(local_epochs=10**6))


def test_a_worker_tells_in_one_line_why_a_workunit_failed_and_lives_on(worker: Worker, tmp_path: Path) -> None:
    worker.say(do="train", folder=str(tmp_path / "nowhere"))
    assert worker.hear_end() == {
        "event": "failed",
        "reason": "workunit.json is missing: fetch the workunit's files again",
    }
    bad = write_workunit(tmp_path / "bad")
    np.savez(bad / "shard.npz", x=np.zeros((8, 5), np.float32), y=np.zeros((8, 1), np.float32))
    worker.say(do="train", folder=str(bad))
    event = worker.hear_end()
    assert event["event"] == "failed"
    assert "\n" not in event["reason"]
    worker.say(do="nonsense")
    worker.say(do="train", folder=str(write_workunit(tmp_path / "good")))
    assert worker.hear_end() == {"event": "done"}


def test_a_worker_quits_and_finishes_a_workunit_when_told_and_not_by_ctrl_c(worker: Worker, endless: Path) -> None:
    worker.say(do="train", folder=str(endless))
    assert worker.hear()["event"] == "progress"
    worker.process.send_signal(signal.SIGINT)
    assert worker.hear()["event"] == "progress"
    worker.say(do="quit")
    assert worker.hear_end() == {"event": "quit"}
    assert (endless / CHECKPOINT_FILE).exists()
    worker.say(do="train", folder=str(endless))
    assert worker.hear()["event"] == "progress"
    worker.say(do="finish")
    assert worker.hear_end() == {"event": "done"}
    assert 0 < read_update(endless)[1].fraction < 1


def test_a_paused_worker_is_silent_until_it_may_go_on(worker: Worker, endless: Path) -> None:
    worker.say(do="train", folder=str(endless))
    assert worker.hear()["event"] == "progress"
    worker.say(do="pause")
    wait_for((endless / CHECKPOINT_FILE).exists, lambda: worker.process.poll() is None)
    before_s = processor_s(worker.process.pid)
    time.sleep(0.7)
    assert processor_s(worker.process.pid) - before_s < 0.2
    worker.say(do="go")
    worker.say(do="quit")
    assert worker.hear_end() == {"event": "quit"}


def test_a_worker_in_mid_training_exits_when_its_parent_is_gone(worker: Worker, endless: Path) -> None:
    worker.say(do="train", folder=str(endless))
    assert worker.hear()["event"] == "progress"
    assert worker.close() == 0


ALONE = """
import sys
import vcdl.client.worker
from vcdl.client.__main__ import main
heavy = "keras tensorflow torch jax pydantic yaml click rich matplotlib sklearn".split()
before = [name for name in heavy if name in sys.modules]
code = main([sys.argv[1]])
ours = sorted(m for m in sys.modules if m.startswith("vcdl."))
print(__import__("json").dumps({"code": code, "before": before, "ours": ours}))
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_client_trains_alone_on_every_backend(backend: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    folder = write_workunit(tmp_path / backend, dropout=0.0)
    environment = {**os.environ, "KERAS_BACKEND": backend}
    process = start("-c", ALONE, folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    facts = json.loads(said.splitlines()[-1])
    assert facts["code"] == ExitCode.OK, errors
    assert not facts["before"], "importing the client takes NumPy and h5py only"
    others = [name for name in facts["ours"] if not name.startswith(("vcdl.client", "vcdl.codecs"))]
    assert {name.split(".")[1] for name in others} == {"errors", "files", "wire"}

    here = write_workunit(tmp_path / "here", dropout=0.0)
    train_workunit(here, ScriptedSupervisor(), TrainerCache())
    (weights, header), (expected, expected_header) = read_update(folder), read_update(here)
    assert header.loss == pytest.approx(expected_header.loss, rel=1e-2)
    np.testing.assert_allclose(weights, expected, atol=2e-3)
