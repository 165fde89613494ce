"""The launcher on Linux finds a Python that can train, in a stated order, and becomes it."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.places import ROOT
from vcdl.client import boinc
from vcdl.client.checkpoint import CHECKPOINT_FILE
from vcdl.client.wrapper_host import FRACTION_FILE

LAUNCHER = ROOT / "wrappers" / "linux" / "vcdl_client"
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

    def launch(self, *arguments: str, path: str = "/usr/bin:/bin", **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["../../projects/x/vcdl_client_3", *arguments],
            cwd=self.slot,
            env={"PATH": path, "VCDL_RUNTIME": str(self.root / "opt"), **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


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


def test_finding_is_quick(layout: Layout) -> None:
    begun_s = time.monotonic()
    layout.launch(VCDL_PYTHON=sys.executable).communicate(timeout=30)
    assert time.monotonic() - begun_s < 1.5, "TensorFlow alone would take seconds"


def test_a_python_that_cannot_train_is_passed_over(layout: Layout) -> None:
    log = layout.root / "log"
    unable = python_at(layout.root / "unable" / "python", log, able=False)
    able = python_at(layout.root / "bin" / "python3", log)
    process = layout.launch(VCDL_PYTHON=str(unable), path=f"{able.parent}:/usr/bin:/bin")
    process.communicate(timeout=30)
    assert process.returncode == 7
    assert log.read_text().split() == [str(unable), str(able), str(able)]


def test_without_any_python_it_says_what_to_do_and_gives_boincs_code(layout: Layout) -> None:
    process = layout.launch(VCDL_PYTHON="/nowhere/python", path=str(tools(layout)))
    said, errors = process.communicate(timeout=30)
    assert (process.returncode, said) == (EXIT_INIT_FAILURE, "")
    first, second = errors.splitlines()
    assert first == (
        "vcdl_client: no Python 3.11 or newer with NumPy, h5py, Keras and TensorFlow among: "
        f"/nowhere/python {layout.root}/opt/bin/python"
    )
    assert f"python3 -m venv {layout.root}/opt; {layout.root}/opt/bin/pip install keras tensorflow" in second


def test_the_python_of_a_fleets_image_comes_before_the_one_in_the_path(layout: Layout) -> None:
    log = layout.root / "log"
    image = python_at(layout.root / "opt" / "bin" / "python", log)
    in_path = python_at(layout.root / "bin" / "python3", log)
    process = layout.launch(path=f"{in_path.parent}:/usr/bin:/bin")
    process.communicate(timeout=30)
    assert process.returncode == 7
    assert log.read_text().split() == [str(image), str(image)]


def test_the_set_up_of_a_fleets_machine_installs_where_the_launcher_looks() -> None:
    place = "${VCDL_RUNTIME:-/opt/vcdl}"
    assert place in LAUNCHER.read_text()
    assert place in (ROOT / "vcdl" / "fleet" / "machine" / "setup.sh").read_text()


def tools(layout: Layout) -> Path:
    """A PATH without Python, with the few programs that the launcher uses."""
    folder = layout.root / "tools"
    folder.mkdir()
    for name in ("head", "tr", "sed", "tar", "rm", "mv", "mkdir", "gzip"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


@pytest.mark.parametrize("as_stub", [True, False])
def test_the_client_is_found_under_its_logical_name_too(layout: Layout, as_stub: bool) -> None:
    (layout.project / "vcdl_client_3.pyz").rename(layout.project / "other.pyz")
    logical = layout.slot / "vcdl_client.pyz"
    if as_stub:
        logical.write_text("<soft_link>../../projects/x/other.pyz</soft_link>\n")
    else:
        shutil.copy(layout.project / "other.pyz", logical)
    process = layout.launch(VCDL_PYTHON=sys.executable)
    said, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (7, "")
    assert said.split()[2] == ("../../projects/x/other.pyz" if as_stub else "vcdl_client.pyz")


def test_a_client_that_is_missing_is_one_line(layout: Layout) -> None:
    (layout.project / "vcdl_client_3.pyz").unlink()
    process = layout.launch(VCDL_PYTHON=sys.executable)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_INIT_FAILURE
    assert errors == "vcdl_client: vcdl_client.pyz is missing: reset the project in the BOINC client\n"


def with_runtime(layout: Layout, log: Path) -> Path:
    """Give the app version a runtime; returns where its Python will lie."""
    inside = layout.root / "inside"
    python_at(inside / "bin" / "python3", log)
    archive = layout.project / "vcdl_runtime_3.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inside, arcname=".")
    (layout.slot / "vcdl_runtime.tar.gz").write_text("<soft_link>../../projects/x/vcdl_runtime_3.tar.gz</soft_link>\n")
    return layout.project / "vcdl_runtime_3.tar.gz.unpacked" / "bin" / "python3"


def test_a_runtime_of_the_app_version_is_unpacked_once_and_used(layout: Layout) -> None:
    log = layout.root / "log"
    python = with_runtime(layout, log)
    (layout.project / "vcdl_runtime_3.tar.gz.unpacked.999999999").mkdir()
    processes = [layout.launch() for _ in range(2)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [7, 7], errors
    assert python.is_file()
    process = layout.launch()
    assert process.communicate(timeout=60)[1] == "", "nothing is unpacked again"
    assert len(log.read_text().split()) == 6
    assert sorted(path.name for path in layout.project.iterdir()) == [
        "vcdl_client_3",
        "vcdl_client_3.pyz",
        "vcdl_runtime_3.tar.gz",
        "vcdl_runtime_3.tar.gz.unpacked",
    ]


def test_a_damaged_runtime_leaves_nothing_and_the_next_python_is_taken(layout: Layout) -> None:
    log = layout.root / "log"
    python = with_runtime(layout, log)
    archive = layout.project / "vcdl_runtime_3.tar.gz"
    archive.write_bytes(archive.read_bytes()[:60])
    able = python_at(layout.root / "bin" / "python3", log)
    process = layout.launch(path=f"{able.parent}:/usr/bin:/bin")
    process.communicate(timeout=60)
    assert process.returncode == 7
    assert not python.exists()
    assert sorted(path.name for path in layout.project.iterdir())[2:] == ["vcdl_runtime_3.tar.gz"]


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_it_is_plain_posix_shell(layout: Layout, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    command = [program, *(["sh"] if shell == "busybox" else []), "../../projects/x/vcdl_client_3"]
    done = subprocess.run(
        command, cwd=layout.slot, env={"PATH": os.defpath, "VCDL_PYTHON": sys.executable}, check=False, timeout=30
    )
    assert done.returncode == 7


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_boincs_wrapper_is_told_the_files_that_the_client_writes(system: str) -> None:
    """All that can be checked here: nobody has run them yet."""
    (job,) = ElementTree.parse(LAUNCHER.parents[1] / system / "job.xml").iter("task")
    assert job.findtext("checkpoint_filename") == CHECKPOINT_FILE
    assert job.findtext("fraction_done_filename") == FRACTION_FILE
    assert job.find("setenv") is None, "one of them replaces the whole environment"
    command = (job.findtext("command_line") or "").replace("$NTHREADS", "3").split()
    assert vars(boinc.parser().parse_args(command)) == {"nthreads": 3, "wrapper": True}
