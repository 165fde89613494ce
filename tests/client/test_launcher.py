"""The launcher on Linux finds a Python that can train, in a stated order, and becomes it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from vcdl.client import boinc

pytestmark = pytest.mark.process

LAUNCHER = ROOT / "wrappers" / "linux" / "vcdl_client"
DOCKERFILE = ROOT / "wrappers" / "docker" / "Dockerfile"
EXIT_INIT_FAILURE = 206
TELLS = "import os, sys\nprint(sys.executable, os.getpid(), sys.argv[0], *sys.argv[1:])\nsys.exit(7)\n"
"""Stands in for the client."""


class Layout:
    """A BOINC client's folders, with the launcher in an app version and one slot."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "projects" / "x"
        self.slot = root / "slots" / "0"
        self.project.mkdir(parents=True)
        self.slot.mkdir(parents=True)
        shutil.copy(LAUNCHER, self.project / "vcdl_client_3")
        (self.project / "vcdl_client_3.pyz").write_text(TELLS)

    def launch(
        self, *arguments: str, path: str = "/usr/bin:/bin", limits: Sequence[str] = (), **environment: str
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*limits, "../../projects/x/vcdl_client_3", *arguments],
            cwd=self.slot,
            env={"PATH": path, "VCDL_RUNTIME": str(self.root / "opt"), **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ended(self, *arguments: str, **settings: Any) -> tuple[int, str, str]:
        """Exit code, output and messages of a launch."""
        process = self.launch(*arguments, **settings)
        said, errors = process.communicate(timeout=60)
        return process.returncode, said, errors


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def python_at(path: Path, log: Path, able: bool = True) -> Path:
    """A Python that notes its runs; without `able`, it has no Keras."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = "" if able else "-S"
    path.write_text(f'#!/bin/sh\necho {path} >> {log}\nexec {sys.executable} {options} "$@"\n')
    path.chmod(0o755)
    return path


def test_the_launcher_becomes_the_client_and_hands_its_arguments_and_its_exit_code_on(layout: Layout) -> None:
    process = layout.launch("--nthreads", "2", VCDL_PYTHON=sys.executable)
    said, errors = process.communicate(timeout=30)
    assert errors == ""
    assert said.split() == [sys.executable, str(process.pid), "../../projects/x/vcdl_client_3.pyz", "--nthreads", "2"]
    assert process.returncode == 7


def test_a_python_that_cannot_train_is_passed_over(layout: Layout) -> None:
    log = layout.root / "log"
    unable = python_at(layout.root / "unable" / "python", log, able=False)
    able = python_at(layout.root / "bin" / "python3", log)
    assert layout.ended(VCDL_PYTHON=str(unable), path=f"{able.parent}:/usr/bin:/bin")[0] == 7
    assert log.read_text().split() == [str(unable), str(able), str(able)]


def test_without_any_python_it_says_what_to_do_and_gives_boincs_code(layout: Layout) -> None:
    closed = layout.root / "closed"
    closed.touch(mode=0o600)
    status, said, errors = layout.ended(VCDL_PYTHON=str(closed), path=str(tools(layout)))
    assert (status, said) == (EXIT_INIT_FAILURE, "")
    first, second = errors.splitlines()
    assert first == (
        "vcdl_client: no Python 3.11 or newer with NumPy, h5py, Keras and TensorFlow among: "
        f"{closed} may not be run by the BOINC client's user; "
        f"{layout.root}/opt/bin/python is not there, or in a folder closed to the BOINC client's user"
    )
    assert f"python3 -m venv {layout.root}/opt; {layout.root}/opt/bin/pip install keras tensorflow" in second


def test_the_python_of_a_fleets_image_comes_before_the_one_in_the_path(layout: Layout) -> None:
    log = layout.root / "log"
    image = python_at(layout.root / "opt" / "bin" / "python", log)
    in_path = python_at(layout.root / "bin" / "python3", log)
    assert layout.ended(path=f"{in_path.parent}:/usr/bin:/bin")[0] == 7
    assert log.read_text().split() == [str(image), str(image)]


def test_the_set_up_of_a_fleets_machine_installs_where_the_launcher_looks() -> None:
    place = "${VCDL_RUNTIME:-/opt/vcdl}"
    assert place in LAUNCHER.read_text()
    assert place in (ROOT / "vcdl" / "fleet" / "machine" / "setup.sh").read_text()


def tools(layout: Layout) -> Path:
    """A PATH without Python, with the few programs that the launcher uses."""
    folder = layout.root / "tools"
    folder.mkdir()
    for name in ("head", "tail", "tr", "sed", "tar", "rm", "mkdir", "gzip"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


STARTED = "import os, sys\nprint(os.environ['VCDL_RUNTIME_ARCHIVE'], sys.flags.isolated)\nsys.exit(7)\n"
"""Stands in for the client of a delivered Python."""


def with_runtime(layout: Layout, log: Path, python: str = "") -> Path:
    """Give the app version a runtime; returns where its Python will lie. `python`: a script in its place."""
    inside = layout.root / "inside"
    program = python_at(inside / "bin" / "python3", log)
    if python:
        program.write_text(python)
    packed = layout.root / "python.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(inside, arcname=".")
    with tarfile.open(layout.project / ARCHIVE, "w") as tar:
        tar.add(packed, arcname="python.tar.gz")
    (layout.slot / "vcdl_runtime.tar").write_text(f"<soft_link>../../projects/x/{ARCHIVE}</soft_link>\n")
    (layout.project / "vcdl_client_3.pyz").write_text(STARTED)
    return layout.project / UNPACKED / "bin" / "python3"


ARCHIVE = "vcdl_runtime_3.tar"
UNPACKED = f"{ARCHIVE}.unpacked"


def left_in_project(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.project.iterdir() if path.name.startswith("vcdl_runtime"))


def test_a_runtime_of_the_app_version_is_unpacked_once_and_used(layout: Layout) -> None:
    log = layout.root / "log"
    python = with_runtime(layout, log)
    (layout.project / f"{UNPACKED}.999999999").mkdir()  # of a killed process
    processes = [layout.launch() for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [7, 7], ends
    assert ends[0][0] == f"../../projects/x/{ARCHIVE} 1\n"
    assert python.is_file()
    assert layout.ended()[2] == "", "nothing is unpacked again"
    assert left_in_project(layout) == [ARCHIVE, UNPACKED]


def test_a_python_of_the_volunteers_choice_comes_before_a_runtime_which_stays_packed(layout: Layout) -> None:
    with_runtime(layout, layout.root / "log")
    (layout.project / "vcdl_client_3.pyz").write_text(TELLS)
    assert layout.ended(VCDL_PYTHON=sys.executable)[2] == ""
    assert left_in_project(layout) == [ARCHIVE]


def test_a_damaged_runtime_leaves_nothing_and_the_next_python_is_taken(layout: Layout) -> None:
    log = layout.root / "log"
    python = with_runtime(layout, log)
    archive = layout.project / ARCHIVE
    archive.write_bytes(archive.read_bytes()[:600])
    (layout.project / "vcdl_client_3.pyz").write_text(TELLS)
    able = python_at(layout.root / "bin" / "python3", log)
    status, _, errors = layout.ended(path=f"{able.parent}:/usr/bin:/bin")
    assert status == 7
    assert "does not run here" in errors
    assert not python.exists()
    assert left_in_project(layout) == [ARCHIVE]


def test_a_runtime_that_does_not_run_on_this_computer_says_why(layout: Layout) -> None:
    message = "libc.so.6: version GLIBC_2.99 not found"
    with_runtime(layout, layout.root / "log", python=f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    status, _, errors = layout.ended(path=str(tools(layout)))
    assert status == EXIT_INIT_FAILURE
    assert f"the Python that came with the app version does not run here: {message}" in errors
    assert left_in_project(layout) == [ARCHIVE]


def test_without_room_for_python_the_task_waits(layout: Layout) -> None:
    """Its words are tar's; the disk is not full here."""
    python = "#!/bin/sh\necho 'tar: lib/x: Cannot write: No space left on device' >&2\nexit 2\n"
    with_runtime(layout, layout.root / "log", python=python)
    (layout.slot / "boinc_mmap_file").write_bytes(bytes(8192))
    assert layout.ended(path=str(tools(layout)))[0] == 0
    assert (layout.slot / "boinc_temporary_exit").read_text().splitlines() == [
        "600",
        "there is no room on the disk to unpack Python",
    ]


@pytest.mark.parametrize("whose", ["delivered", "chosen", "in the path"])
def test_a_disk_that_was_full_once_leaves_every_module_fit_for_import(layout: Layout, whose: str) -> None:
    """Python 3.11 to 3.13 keep half of a module's byte-code then, and no later process can import that module."""
    if whose == "delivered":
        with_runtime(layout, layout.root / "log")
        assert layout.ended()[0] == 7
    (layout.project / "vcdl_client_3.pyz").write_text(
        f"import sys; sys.path.append({str(layout.root)!r}); import large"
    )
    (layout.root / "large.py").write_text("".join(f"def f{number}(): return {number}\n" for number in range(200)))
    chosen = {"VCDL_PYTHON": sys.executable} if whose == "chosen" else {}
    path = f"{python_at(layout.root / 'bin' / 'python3', layout.root / 'log').parent}:/usr/bin:/bin"
    for limits in (["prlimit", "--fsize=1000"], []):
        assert layout.ended(path=path, limits=limits, **chosen) == (0, "", "")


def entrypoint() -> list[str]:
    """What a container starts, as wrappers/docker/Dockerfile says."""
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    command: list[str] = json.loads(line)
    return command


def in_container(layout: Layout, host_name: str, **environment: str) -> "subprocess.Popen[str]":
    """Start what a container starts, with its variables; the folders lie as they do in it."""
    (layout.slot / "vcdl_client").write_text("<soft_link>../../projects/x/vcdl_client_3</soft_link>\n")
    kept = layout.root / "kept"
    kept.mkdir(exist_ok=True)
    given = {"PATH": "/usr/bin:/bin", "HOSTNAME": host_name, "VCDL_KEPT": f"{kept}/", **environment}
    return subprocess.Popen(
        entrypoint(), cwd=layout.slot, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_containers_unpack_into_their_volume_and_leave_the_projects_folder_as_it_is(layout: Layout) -> None:
    with_runtime(layout, layout.root / "log")
    (layout.project / "vcdl_client_3.pyz").write_text(
        "import os, sys\nprint(os.environ['VCDL_PROJECT'], sys.executable, *sys.argv[1:])\nsys.exit(7)\n"
    )
    before = sorted(layout.project.iterdir())
    (layout.root / "kept").mkdir()
    old, busy = (layout.root / "kept" / f"{UNPACKED}.1.{name}" for name in ("old", "busy"))
    for left in (old, busy):  # of other containers: nobody here can see whether their processes live
        left.mkdir()
    os.utime(old, (0, 0))
    processes = [in_container(layout, name, ARGS=" --nthreads 2") for name in ("a1", "b2")]
    ends = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [7, 7], ends
    said = ends[0][0].split()
    assert (said[0], said[2:]) == ("../../projects/x", ["--wrapper", "--nthreads", "2"])
    assert vars(boinc.parser().parse_args(said[2:])) == {"nthreads": 2, "wrapper": True}
    assert sorted(layout.project.iterdir()) == before
    assert sorted(path.name for path in (layout.root / "kept").iterdir()) == [UNPACKED, busy.name]


def test_a_container_without_room_fails_as_docker_wrapper_cannot_postpone(layout: Layout) -> None:
    with_runtime(layout, layout.root / "log", python="#!/bin/sh\necho 'tar: No space left on device' >&2\nexit 2\n")
    (layout.slot / "boinc_mmap_file").write_bytes(bytes(8192))
    process = in_container(layout, "a1")
    assert "no room on the disk" in process.communicate(timeout=60)[1]
    assert process.returncode == EXIT_INIT_FAILURE
    assert not (layout.slot / "boinc_temporary_exit").exists()
