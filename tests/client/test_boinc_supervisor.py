"""The supervisor of a training under BOINC, spoken to over real shared memory; and the small files through which a
task ends.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.boinc_side import CONTROL, STATUS, ClientSide, wait_for
from vcdl.client import boinc_supervisor
from vcdl.client.boinc_supervisor import BoincSupervisor
from vcdl.client.channels import Channel, Channels
from vcdl.client.init_data import InitData
from vcdl.client.memory import available_memory_bytes
from vcdl.client.processors import device_environment
from vcdl.client.resources import Shortage, check_memory, shortage_of
from vcdl.client.slot import SlotError, clear_endings, locked_slot, tell_finished, tell_postponed
from vcdl.client.supervisor import Request
from vcdl.client.wrapper_supervisor import WrapperSupervisor
from vcdl.errors import DISK_FULL, WorkunitError


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ClientSide]:
    side = ClientSide(tmp_path)
    yield side
    side.close()


@pytest.fixture
def init(tmp_path: Path) -> InitData:
    project = tmp_path / "project"
    project.mkdir()
    return InitData(project, client_pid=os.getpid(), cpu_s=1000.0)


@pytest.fixture
def supervisor(client: ClientSide, init: InitData, tmp_path: Path) -> Iterator[BoincSupervisor]:
    with training(BoincSupervisor(Channels(tmp_path), init, tmp_path)) as supervisor:
        yield supervisor


def training(supervisor: BoincSupervisor) -> BoincSupervisor:
    """A supervisor whose training has asked for the second time: it has trained a batch, and will ask again."""
    for _ in range(2):
        supervisor.request()
    return supervisor


def test_a_message_is_taken_once_and_the_next_one_waits_until_then(client: ClientSide, tmp_path: Path) -> None:
    channels = Channels(tmp_path)
    client.put(CONTROL, "<suspend/>")
    assert channels.receive(Channel.CONTROL) == "<suspend/>"
    assert channels.receive(Channel.CONTROL) is None
    client.close()
    assert channels.send(Channel.STATUS, "first, and longer")
    assert not channels.send(Channel.STATUS, "second")
    assert client.take(STATUS) == "first, and longer"
    assert channels.send(Channel.STATUS, "second")
    assert client.take(STATUS) == "second"


@pytest.mark.parametrize("content", [None, b"", bytes(1000)])
def test_shared_memory_that_is_missing_or_too_small_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "boinc_mmap_file").write_bytes(content)
    with pytest.raises(SlotError, match=r"boinc_mmap_file cannot be used .*: restart the BOINC client"):
        Channels(tmp_path)


@pytest.mark.slow
def test_a_throttled_training_waits_without_a_pause_and_so_without_a_checkpoint(
    client: ClientSide, supervisor: BoincSupervisor
) -> None:
    client.say("<suspend/>")
    begun_s = time.monotonic()
    resume_after(client, 0.5)
    assert supervisor.request() is Request.GO
    assert time.monotonic() - begun_s > 0.4


def resume_after(client: ClientSide, delay_s: float) -> None:
    threading.Timer(delay_s, client.put, (CONTROL, "<resume/>")).start()


@pytest.mark.slow
@pytest.mark.parametrize("before", [[], ["<suspend/>"]])
def test_a_quit_reaches_the_training_suspended_or_not(
    client: ClientSide, supervisor: BoincSupervisor, before: list[str]
) -> None:
    for message in [*before, "<quit/>"]:
        client.say(message)
    wait_for(lambda: supervisor.request() is Request.QUIT)
    client.say("<suspend/>")
    assert supervisor.request() is Request.QUIT


@pytest.mark.slow
def test_the_client_hears_progress_and_processor_time_over_all_processes(
    client: ClientSide, supervisor: BoincSupervisor
) -> None:
    wait_for(lambda: bool(client.told))
    assert client.told[-1]["current_cpu_time"] > 1000
    assert client.told[-1]["checkpoint_cpu_time"] == 1000
    supervisor.checkpoint_made()
    wait_for(lambda: client.told[-1]["checkpoint_cpu_time"] > 1000)
    assert client.told[-1]["checkpoint_cpu_time"] <= client.told[-1]["current_cpu_time"]


@pytest.mark.slow
def test_nothing_is_said_of_progress_before_the_batches_tell_how_long_the_rest_will_take(
    client: ClientSide, init: InitData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boinc_supervisor, "_STATUS_EVERY_S", 0.1)
    with BoincSupervisor(Channels(tmp_path), init, tmp_path) as supervisor:
        training(supervisor)
        supervisor.progress(0.01, 10)
        wait_for(lambda: len(client.told) > 2)
        assert not any("fraction_done" in status for status in client.told)
        supervisor.progress(0.5, 100)
        wait_for(lambda: "fraction_done" in client.told[-1])
    assert 0 < client.told[-1]["fraction_done"] < 1


@pytest.mark.slow
def test_a_start_is_suspended_wherever_it_is(client: ClientSide, init: InitData, tmp_path: Path) -> None:
    """Nobody asks for the client's wish while Keras is imported."""
    steps, stood_still, over = [0], threading.Event(), threading.Event()

    def suspend_and_resume() -> None:
        def stands_still() -> bool:
            before = steps[0]
            time.sleep(0.2)
            return steps[0] == before

        client.say("<suspend/>")
        try:
            wait_for(stands_still)
            stood_still.set()
            client.say("<resume/>")
        finally:
            over.set()

    with BoincSupervisor(Channels(tmp_path), init, tmp_path):
        client_side = threading.Thread(target=suspend_and_resume)
        client_side.start()
        while not over.is_set():
            steps[0] += 1
        client_side.join()
    assert stood_still.is_set()


def test_a_client_that_does_not_listen_does_not_keep_a_task_from_ending(tmp_path: Path, init: InitData) -> None:
    side = ClientSide(tmp_path)
    side.close()
    with training(BoincSupervisor(Channels(tmp_path), init, tmp_path)) as supervisor:
        begun_s = time.monotonic()
        supervisor.tell_done()
        assert time.monotonic() - begun_s < 4


@pytest.mark.process
def test_the_training_quits_when_the_clients_process_is_gone(
    client: ClientSide, init: InitData, tmp_path: Path
) -> None:
    parent = subprocess.Popen(["sleep", "60"])
    with training(BoincSupervisor(Channels(tmp_path), replace(init, client_pid=parent.pid), tmp_path)) as supervisor:
        time.sleep(1.5)
        assert supervisor.request() is Request.GO
        parent.kill()
        parent.wait()
        wait_for(lambda: supervisor.request() is Request.QUIT)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(("known_pid", "silence"), [(False, "_SILENCE_S"), (True, "_SILENCE_WITH_PID_S")])
def test_the_training_quits_when_there_are_no_heartbeats(
    client: ClientSide, init: InitData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_pid: bool, silence: str
) -> None:
    monkeypatch.setattr(boinc_supervisor, silence, 2.0)
    told = init if known_pid else replace(init, client_pid=0)
    with training(BoincSupervisor(Channels(tmp_path), told, tmp_path)) as supervisor:
        client.say("<suspend/>")
        time.sleep(3)
        assert supervisor.request() is Request.PAUSE, "heartbeats continue while a task is suspended"
        client.beats = False
        wait_for(lambda: supervisor.request() is Request.QUIT)


HANGS = """
import time
from pathlib import Path
from vcdl.client import boinc_supervisor
from vcdl.client.channels import Channels
from vcdl.client.init_data import InitData
boinc_supervisor._END_WITHIN_S = 1.0
with boinc_supervisor.BoincSupervisor(Channels(Path()), InitData(Path()), Path()) as supervisor:
    supervisor.request()
    time.sleep(600)
"""


@pytest.mark.process
def test_a_training_that_hangs_ends_before_the_client_kills_it(client: ClientSide, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HANGS], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(client.told))
    client.say("<quit/>")
    _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "ends without a new checkpoint: the training did not stop in time\n")


@pytest.mark.parametrize("where", ["slot", "project"])
def test_a_file_in_the_slot_or_the_projects_folder_asks_to_finish_now(
    supervisor: BoincSupervisor, init: InitData, tmp_path: Path, where: str
) -> None:
    assert supervisor.request() is Request.GO
    ((tmp_path if where == "slot" else init.project) / "vcdl_finish_now").touch()
    wait_for(lambda: supervisor.request() is Request.FINISH)


@pytest.mark.slow
def test_under_the_wrapper_files_and_a_signal_are_all_there_is(tmp_path: Path, init: InitData) -> None:
    supervisor = WrapperSupervisor(tmp_path, init)
    assert supervisor.request() is Request.GO
    supervisor.progress(0.0, 0)
    supervisor.progress(1.0, 10)
    assert (tmp_path / "fraction_done").read_text() == "1.000000\n"
    (tmp_path / "vcdl_finish_now").touch()
    wait_for(lambda: supervisor.request() is Request.FINISH)
    supervisor.quit()
    assert supervisor.request() is Request.QUIT


@pytest.mark.process
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_container_that_was_not_paused_ends_when_its_wrapper_has(
    tmp_path: Path, init: InitData, is_seen: bool
) -> None:
    """Where a virtual machine does not show the wrapper's lock, nothing is concluded from its absence."""
    with lock_holder(tmp_path) if is_seen else nullcontext() as wrapper:
        supervisor = WrapperSupervisor(tmp_path, init)
        assert supervisor.request() is Request.GO
        if wrapper is not None:
            wrapper.kill()
            wrapper.wait()
            wait_for(lambda: supervisor.request() is Request.QUIT)
        else:
            time.sleep(1.1)  # longer than between two looks
    assert supervisor.request() is (Request.QUIT if is_seen else Request.GO)


def test_endings_are_files_as_boinc_reads_them(tmp_path: Path) -> None:
    tell_finished(tmp_path)
    tell_postponed(tmp_path, 600, "the disk is full")
    assert (tmp_path / "boinc_finish_called").read_text() == "0\n"
    assert (tmp_path / "boinc_temporary_exit").read_text() == "600\nthe disk is full\n"
    clear_endings(tmp_path)
    assert not list(tmp_path.iterdir())


@contextmanager
def lock_holder(slot: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds BOINC's lock of a slot."""
    program = (
        "import fcntl, os, sys, time\nd = os.open('boinc_lockfile', os.O_CREAT | os.O_WRONLY)\n"
        "fcntl.lockf(d, fcntl.LOCK_EX)\nprint('held', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=slot, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield other
        finally:
            other.kill()


@pytest.mark.process
def test_a_slot_belongs_to_one_process(tmp_path: Path) -> None:
    with lock_holder(tmp_path), pytest.raises(Shortage, match="another process"), locked_slot(tmp_path, 0.3):
        pass
    with locked_slot(tmp_path, 5):
        pass


def test_what_is_lacking_is_found_at_the_root_of_an_error() -> None:
    def masked(cause: Exception) -> WorkunitError:
        error = WorkunitError("shard.npz is damaged")
        error.__cause__ = cause
        return error

    assert shortage_of(MemoryError()) == "out of memory"
    assert shortage_of(masked(MemoryError())) == "out of memory"
    assert shortage_of(type("ResourceExhaustedError", (Exception,), {})("OOM when allocating")) == "out of memory"
    for number in DISK_FULL:
        assert shortage_of(masked(OSError(number, os.strerror(number)))) == "the disk is full"
    assert shortage_of(masked(OSError(12, "Cannot allocate memory"))) == "out of memory"
    assert shortage_of(masked(OSError(2, "No such file"))) is None
    assert shortage_of(WorkunitError("workunit.json is missing")) is None


def test_a_task_does_not_begin_without_half_of_its_memory() -> None:
    check_memory(2e9, 1_000_000_000)
    check_memory(2e9, None)
    with pytest.raises(Shortage, match="only 95 MiB of memory are free, but training needs 1000 MiB"):
        check_memory(2000 * 2**20, 10**8)
    assert (available_memory_bytes() or 0) > 10**7


def test_only_the_device_of_the_task_is_visible() -> None:
    nothing = InitData(Path())
    second = replace(nothing, gpu_type="NVIDIA", gpu_device=1)
    assert device_environment(nothing, "0,1")["CUDA_VISIBLE_DEVICES"] == "-1"
    assert device_environment(second, None)["CUDA_VISIBLE_DEVICES"] == "1"
    assert device_environment(second, "2, 3")["CUDA_VISIBLE_DEVICES"] == "3"
    assert device_environment(second, None)["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert device_environment(replace(second, gpu_type="ATI"), None)["CUDA_VISIBLE_DEVICES"] == "-1"
