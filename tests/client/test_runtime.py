"""A delivered Python unpacks its packages once, whatever happens meanwhile."""

import errno
import json
import os
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest

from tests.client.boinc_side import init_data, task
from tests.places import ROOT
from vcdl.client.resources import Shortage
from vcdl.client.runtime import ARCHIVE_VARIABLE, RuntimeUnusable, make_ready

FOLDER = "lib/site-packages"


class Delivered:
    """A project's folder with the archive of a runtime, whose Python is unpacked."""

    def __init__(self, project: Path, files: int = 200, size: int = 1000) -> None:
        self.project = project
        self.archive = project / "vcdl_runtime_1.tar"
        self.prefix = project / "vcdl_runtime_1.tar.unpacked"
        self.packages = self.prefix / FOLDER
        (self.prefix / "lib").mkdir(parents=True)
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz") as tar:
            for number in range(files):
                add(tar, f"keras/m{number}.py", os.urandom(size))
        with tarfile.open(self.archive, "w") as tar:
            add(tar, "packages.tar.xz", packed.getvalue())
        self.say()

    def say(self, **others: object) -> None:
        """Write the manifest."""
        fields = {"folder": FOLDER, "backend": "jax", "processor_needs": [], "packages_bytes": 1 << 20, **others}
        (self.prefix / "runtime.json").write_text(json.dumps(fields))

    def is_whole(self) -> bool:
        return len(list((self.packages / "keras").iterdir())) == 200


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, BytesIO(content))


@pytest.fixture
def delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Delivered:
    made = Delivered(tmp_path)
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(made.archive))
    monkeypatch.setenv("KERAS_BACKEND", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return made


def test_the_packages_are_unpacked_over_what_a_killed_task_left_and_found_with_their_backend(
    delivered: Delivered,
) -> None:
    growing = delivered.packages.with_name("site-packages.growing")
    (growing / "keras").mkdir(parents=True)
    (growing / "keras" / "half.py").write_text("x")
    make_ready(delivered.prefix)
    assert delivered.is_whole()
    assert not growing.exists()
    assert sys.path[-1] == str(delivered.packages)
    assert os.environ["KERAS_BACKEND"] == "jax"


@pytest.mark.process
def test_tasks_that_start_together_unpack_once(delivered: Delivered) -> None:
    program = (
        "import logging, sys; from pathlib import Path; from vcdl.client.runtime import make_ready\n"
        "logging.basicConfig(level=logging.INFO); make_ready(Path(sys.argv[1]))"
    )
    tasks = [
        subprocess.Popen([sys.executable, "-c", program, str(delivered.prefix)], stderr=subprocess.PIPE, cwd=ROOT)
        for _ in range(3)
    ]
    said = b"".join(task.communicate(timeout=60)[1] for task in tasks)
    assert [task.returncode for task in tasks] == [0, 0, 0], said
    assert said.count(b"unpacking Keras") == 1
    assert delivered.is_whole()


@pytest.mark.parametrize("size", [700, 5000])
def test_a_damaged_archive_is_said_and_leaves_nothing(delivered: Delivered, size: int) -> None:
    delivered.archive.write_bytes(delivered.archive.read_bytes()[:size])
    with pytest.raises(RuntimeUnusable, match="is damaged"):
        make_ready(delivered.prefix)
    assert [path.name for path in (delivered.prefix / "lib").iterdir()] == []


def test_without_room_the_task_waits(delivered: Delivered) -> None:
    delivered.say(packages_bytes=1 << 60)
    with pytest.raises(Shortage, match=r"takes 1099511627776 MB of disk, but only \d+ MB are free"):
        make_ready(delivered.prefix)


@pytest.mark.process
def test_a_disk_that_fills_meanwhile_is_a_shortage_and_leaves_nothing(delivered: Delivered) -> None:
    """A limit on the size of files in the place of a full disk."""
    program = (
        "import resource, sys; from pathlib import Path; from vcdl.client.runtime import make_ready\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); make_ready(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(delivered.prefix)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert f"Shortage: unpacking Keras takes 1 MB of disk: {os.strerror(errno.EFBIG)}" in done.stderr
    assert [path.name for path in (delivered.prefix / "lib").iterdir()] == []


def test_a_processor_that_lacks_something_is_said_before_anything_is_unpacked(delivered: Delivered) -> None:
    delivered.say(processor_needs=["avx9"])
    with pytest.raises(RuntimeUnusable, match="processor has no AVX9"):
        make_ready(delivered.prefix)
    assert not delivered.packages.exists()


def test_runtimes_whose_archive_boinc_has_deleted_go(delivered: Delivered) -> None:
    old, used = (delivered.project / f"vcdl_runtime_{name}.tar.unpacked" for name in ("old", "used"))
    for folder in (old, used):
        (folder / "bin").mkdir(parents=True)
    (delivered.project / "vcdl_runtime_used.tar").write_bytes(b"")
    make_ready(delivered.prefix)
    assert not old.exists()
    assert used.exists()


@pytest.mark.process
def test_a_task_that_unpacks_hears_the_client_and_shows_life(tmp_path: Path) -> None:
    delivered = Delivered(tmp_path / "project", files=10_000, size=50)
    slot = tmp_path / "slot"
    slot.mkdir()
    (slot / "init_data.xml").write_text(init_data(delivered.project))
    growing = delivered.packages.with_name(f"{delivered.packages.name}.growing") / "keras"

    def unpacked() -> int:
        return len(list(growing.iterdir())) if growing.is_dir() else 0

    program = f"import sys; sys.prefix = {str(delivered.prefix)!r}; from vcdl.client.boinc import run; run()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), ARCHIVE_VARIABLE: str(delivered.archive)}
    with task(slot, [sys.executable, "-c", program], environment) as unpacks:
        unpacks.wait_for(lambda: unpacked() > 0 and any(told["current_cpu_time"] > 0 for told in unpacks.client.told))
        unpacks.client.say("<suspend/>")
        time.sleep(1)
        before = unpacked()
        time.sleep(1)
        assert unpacked() == before < 10_000
        unpacks.client.say("<resume/>")
        unpacks.wait_for(lambda: unpacked() > before)
        unpacks.client.say("<quit/>")
        assert unpacks.ends() == 0
    assert not delivered.packages.exists(), "the next task unpacks them"


@pytest.mark.process
def test_all_that_is_imported_before_the_packages_are_there_needs_none_of_them() -> None:
    program = "import sys; sys.modules.update(numpy=None, h5py=None, keras=None); import vcdl.client.boinc"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.process
def test_the_client_is_told_when_a_task_has_to_wait_for_room(delivered: Delivered, tmp_path: Path) -> None:
    delivered.say(packages_bytes=1 << 60)
    slot = tmp_path / "slot"
    slot.mkdir()
    (slot / "boinc_mmap_file").write_bytes(bytes(8192))
    (slot / "init_data.xml").write_text(init_data(delivered.project))
    program = f"import sys; sys.prefix = {str(delivered.prefix)!r}; from vcdl.client.boinc import run; run()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command, told = [sys.executable, "-c", program], slot / "boinc_temporary_exit"
    for has_client in (True, False):
        done = subprocess.run(command, cwd=slot, env=environment, capture_output=True, text=True)
        if has_client:
            assert done.returncode == 0, done.stderr
            assert told.read_text().startswith("600\nunpacking Keras takes 1099511627776 MB")
            (slot / "boinc_mmap_file").unlink()
        else:
            assert done.returncode == 206, "BOINC's wrapper cannot postpone"
