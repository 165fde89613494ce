"""The real client process, launched as a BOINC client launches it, with the test in the place of the BOINC client."""

import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.boinc_side import ACCOUNT_KEY, TIMEOUT_S, Task, init_data, task
from tests.client.workunit_folder import SAMPLES, ScriptedSupervisor, read_update, with_training, write_workunit
from tests.full_disk import files_limited_to
from tests.places import ROOT
from vcdl import __version__
from vcdl.boinc.project.client_build import build_client
from vcdl.client.boinc import main
from vcdl.client.inputs import read_workunit
from vcdl.client.train import train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.client.unneeded import UNNEEDED
from vcdl.errors import ExitCode

pytestmark = [pytest.mark.process, pytest.mark.keras]

LAUNCHER = ROOT / "wrappers" / "linux" / "vcdl_client"
NAME = "vcdl_client_0.1.0"
ENDLESS = 10**6
"""Local epochs that take hours."""


class Host:
    """A volunteer's machine: a BOINC client's folders with our app version in them."""

    def __init__(self, root: Path) -> None:
        self.project = root / "projects" / "x"
        self.project.mkdir(parents=True)
        self.slots = root / "slots"
        self.others = root / "home", root / "tmp"
        """Folders of the machine's owner, where a task must not write."""
        for folder in self.others:
            folder.mkdir()
        shutil.copy(LAUNCHER, self.project / NAME)
        build_client(self.project / f"{NAME}.pyz")

    def slot(self, name: str, local_epochs: int = ENDLESS, **told: object) -> Path:
        """A slot with a workunit; `told` as in init_data.xml."""
        folder = write_workunit(self.slots / name, with_training(local_epochs=local_epochs))
        self.tell(folder, **told)
        return folder

    def tell(self, slot: Path, **told: object) -> None:
        (slot / "init_data.xml").write_text(init_data(self.project, **told))

    @contextmanager
    def run(self, slot: Path, *arguments: str) -> Iterator[Task]:
        home, temporary = map(str, self.others)
        environment = {**os.environ, "VCDL_PYTHON": sys.executable, "HOME": home, "TMPDIR": temporary}
        with task(slot, [f"../../projects/x/{NAME}", "--nthreads", "1", *arguments], environment) as started:
            yield started
        assert [path for folder in self.others for path in folder.rglob("*")] == []


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("boinc"))


def checkpointed_samples(slot: Path) -> int:
    with np.load(slot / "checkpoint.npz") as file:
        return int(json.loads(file["header"].tobytes())["position"]["samples"])


def test_a_task_is_suspended_resumed_quit_restarted_and_finished_as_boinc_wants(host: Host) -> None:
    slot = host.slot("0", local_epochs=4000, checkpoint_period="0.5", wu_cpu_time="100.0")
    with host.run(slot) as first:
        first.wait_until_it_trains()
        told = first.client.told
        assert told[-1]["current_cpu_time"] > 101
        first.wait_for(lambda: len({status["checkpoint_cpu_time"] for status in told}) >= 3)
        assert all(b["current_cpu_time"] >= a["current_cpu_time"] for a, b in itertools.pairwise(told))

        first.client.say("<suspend/>")
        time.sleep(5)  # the pause, its checkpoint, and the client told of it
        samples, fraction, before_s = checkpointed_samples(slot), first.fraction, first.processor_s()
        time.sleep(3)
        assert first.processor_s() - before_s < 0.1
        assert (checkpointed_samples(slot), first.fraction) == (samples, fraction)

        first.client.say("<resume/>")
        first.wait_until_it_trains()
        first.client.say("<quit/>")
        begun_s = time.monotonic()
        assert first.ends() == 0
        assert time.monotonic() - begun_s < 10
        assert not (slot / "boinc_finish_called").exists()
        assert not (slot / "update.h5").exists()
        kept = checkpointed_samples(slot)
        assert kept > samples
        checkpoint_cpu_s = told[-1]["checkpoint_cpu_time"]

    host.tell(slot, checkpoint_period="60", wu_cpu_time=checkpoint_cpu_s)
    with host.run(slot) as second:
        second.wait_until_it_trains()
        assert 0 < second.fraction < 1
        assert second.client.told[0]["current_cpu_time"] >= checkpoint_cpu_s
        (slot / "vcdl_finish_now").touch()
        assert second.ends() == 0
        assert (slot / "boinc_finish_called").read_text() == "0\n"
        assert second.client.told[-1]["fraction_done"] == 1.0
        header = read_update(slot)[1]
        assert kept / (4000 * SAMPLES) < header.fraction < 1
        assert not (slot / "checkpoint.npz").exists()
        assert ACCOUNT_KEY not in second.errors
        assert "Traceback" not in second.errors


def test_a_task_that_is_trained_to_the_end_gives_the_update_of_any_other_host(host: Host, tmp_path: Path) -> None:
    """Also when the GPU that it was given cannot be used."""
    slot = host.slot("whole", local_epochs=2, gpu_type="NVIDIA", gpu_device_num=17)
    (slot / "boinc_finish_called").write_text("195\n")  # of a process before
    came = host.project / read_workunit(slot).description_file  # the client copied it into the slot just now
    came.touch()
    os.utime(came, (0.0, time.time() - 100.0))
    with host.run(slot) as process:
        assert process.ends() == 0
        assert "Keras does not see GPU 17: training on the processor. Check nvidia-smi" in process.errors
    assert (slot / "boinc_finish_called").read_text() == "0\n"
    weights, header = read_update(slot)
    assert 99.0 < header.times_s["host"] < 130.0
    here = write_workunit(tmp_path / "here", with_training(local_epochs=2))
    train_workunit(here, ScriptedSupervisor(), TrainerCache())
    np.testing.assert_allclose(weights, read_update(here)[0], rtol=1e-5, atol=1e-6)


def test_a_task_is_aborted_at_once(host: Host) -> None:
    with host.run(host.slot("aborted")) as process:
        process.wait_until_it_trains()
        process.client.say("<abort/>")
        assert process.ends(timeout_s=5) == 194


def test_a_task_that_is_suspended_from_the_beginning_imports_nothing_and_can_be_quit(host: Host) -> None:
    slot = host.slot("suspended")
    with host.run(slot) as process:
        process.client.put(0, "<suspend/>")
        process.wait_for(lambda: bool(process.client.told))
        before_s = process.processor_s()
        time.sleep(2)
        assert process.processor_s() - before_s < 0.1
        assert before_s < 2, "Keras was imported"
        process.client.say("<quit/>")
        assert process.ends(timeout_s=5) == 0
    assert not (slot / "boinc_finish_called").exists()


def test_a_task_that_is_quit_while_keras_is_imported_ends_at_once(host: Host) -> None:
    slot = host.slot("early")
    with host.run(slot) as process:
        process.wait_for(lambda: process.processor_s() > 1.5)
        process.client.say("<quit/>")
        assert process.ends(timeout_s=5) == 0
        assert "before anything was trained" in process.errors


def test_a_workunit_that_cannot_be_trained_is_one_line_and_an_error(host: Host) -> None:
    slot = host.slot("damaged", gpu_type="ATI", gpu_device_num=0)  # whose warning would import Keras first
    (slot / "workunit.json").write_text("{")
    with host.run(slot) as process:
        assert process.ends() == ExitCode.RUN_FAILED
        assert "Traceback" not in process.errors
        begun, failed = process.errors.splitlines()
    assert f"VCDL {__version__}, Python 3" in begun
    assert "failed: workunit.json is not JSON" in failed
    assert not (slot / "boinc_finish_called").exists()


def test_a_machine_without_memory_postpones_the_task(host: Host) -> None:
    slot = host.slot("large", rsc_memory_bound="1e16")
    with host.run(slot) as process:
        assert process.ends() == 0
    delay, reason = (slot / "boinc_temporary_exit").read_text().splitlines()
    assert delay == "600"
    assert reason.endswith("MiB of memory are free, but training needs 4768371582 MiB")


def test_a_full_disk_postpones_the_task(host: Host, in_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = host.slot("full", local_epochs=1, ncpus="2.5")
    (slot / "boinc_mmap_file").write_bytes(bytes(8192))
    monkeypatch.chdir(slot)
    with files_limited_to(1000):
        assert main([]) == 0
    assert (slot / "boinc_temporary_exit").read_text() == "600\nthe disk is full\n"
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "3"
    assert not (slot / "boinc_finish_called").exists()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what the client does to the process that it has for itself."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "2"))
    for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, os.environ.get(name, "-1"))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    shown = UNNEEDED - sys.modules.keys()
    handlers: dict[Any, Any] = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for name in shown:
        sys.modules.pop(name, None)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.nightly
def test_under_the_wrapper_a_signal_leaves_a_checkpoint_in_time_and_a_new_process_goes_on(host: Host) -> None:
    slot = host.slot("wrapped", local_epochs=4000)
    fraction = slot / "fraction_done"
    with host.run(slot, "--wrapper") as first:
        first.wait_for(lambda: fraction.exists() and bool(fraction.read_text()))
        first.process.send_signal(signal.SIGTERM)
        assert first.ends(timeout_s=8) == 0
    kept = checkpointed_samples(slot)
    fraction.unlink()
    before = kept / (4000 * SAMPLES)
    with host.run(slot, "--wrapper") as second:
        second.wait_for(lambda: fraction.exists() and bool(fraction.read_text()))
        (host.project / "vcdl_finish_now").touch()
        assert second.ends(TIMEOUT_S) == 0
    (host.project / "vcdl_finish_now").unlink()
    assert before < read_update(slot)[1].fraction < 1
    assert float(fraction.read_text()) > 0
    assert not (slot / "boinc_finish_called").exists(), "the wrapper writes it"
