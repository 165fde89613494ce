"""The resident checker: what the launchers ask, what it answers, and what follows when it cannot."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType

import pytest

from tests.places import ROOT
from vcdl.boinc.daemons.checker import Checkers, connect, socket_address
from vcdl.boinc.daemons.checking_process import judge, serve
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.validate import LATER, REFUSED, Verdict
from vcdl.boinc.grid.environment import environment_file
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError

pytestmark = pytest.mark.server

IN_PERSON = 64
CONFIG = """<boinc><config>
<master_url>http://127.0.0.1/test/</master_url><db_name>test</db_name><host>{host}</host>
<download_dir>download</download_dir><upload_dir>upload</upload_dir>
</config><daemons>
<daemon><cmd>script_validator --app vcdl --init_script vcdl_validate --mod 3 0</cmd></daemon>
<daemon><cmd>script_validator --app vcdl --init_script vcdl_validate --mod 3 1</cmd></daemon>
<daemon><cmd>script_validator --app vcdl --init_script vcdl_validate --mod 3 2</cmd><disabled>1</disabled></daemon>
<daemon><cmd>script_validator --app vcdl --init_script vcdl_validate</cmd><host>elsewhere</host></daemon>
<daemon><cmd>script_validator --app other --init_script other</cmd></daemon>
</daemons></boinc>"""


@pytest.fixture
def project() -> Iterator[BoincProject]:
    """A project's folder with a job, without a database."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as name:
        path = Path(name) / ("long" * 30)  # longer than the address of a socket may be
        for folder in ("bin", "upload", "vcdl/runs/job"):
            (path / folder).mkdir(parents=True)
        (path / "config.xml").write_text(CONFIG.format(host=socket.gethostname().split(".")[0]))
        environment_file(path).write_text(f"VCDL_PYTHON='{sys.executable}'\nPYTHONPATH='{ROOT}'\n")
        for launcher in (ROOT / "boinc_project" / "bin").iterdir():
            (path / "bin" / launcher.name).symlink_to(launcher)
        yield BoincProject.at(path)


@pytest.fixture
def asker() -> ModuleType:
    specification = importlib.util.spec_from_file_location("vcdl_ask", ROOT / "boinc_project" / "bin" / "vcdl_ask.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def answering(project: BoincProject) -> Iterator[BoincProject]:
    """The project with a checking process, as a thread, and a Python that starts no whole program."""
    python = project.path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment_file(project.path).write_text(f"VCDL_PYTHON='{python}'\n")
    with socket.socket(socket.AF_UNIX) as listener, closing(OpenedRuns(project)) as runs:
        until, end = os.pipe()
        with socket_address(project) as address:
            listener.bind(address)
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener, runs, until))
        thread.start()
        yield project
        os.close(end)
        thread.join()
        os.close(until)


def validated(project: BoincProject, file: str, script: str = "vcdl_validate") -> subprocess.CompletedProcess[str]:
    """As script_validator runs it."""
    return subprocess.run(
        f"../bin/{script} {file}", shell=True, cwd=project.bin, capture_output=True, text=True, check=False
    )


def test_a_launcher_hands_on_what_the_checker_says(answering: BoincProject) -> None:
    done = validated(answering, "../upload/gone_e0001_s000_a0_v000000_0_r123_0")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr == "gone_e0001_s000_a0_v000000_0_r123_0: there is no job gone in this project (any more)\n"


def test_what_the_checker_cannot_look_at_the_launcher_looks_at_itself(
    answering: BoincProject, asker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (answering.runs_folder / "job").rmdir()  # no job at all: the disk may not be mounted
    monkeypatch.chdir(answering.bin)
    for arguments in (["validate", "gone_e0001_s000_a0_v000000_0_r1_0"], ["no_such", "x"], ["validate", "x", "y"], []):
        monkeypatch.setattr(sys, "argv", ["../bin/vcdl_ask.py", *arguments])
        assert asker.main() == IN_PERSON
    monkeypatch.setattr(sys, "argv", ["../bin/vcdl_ask.py", "validate", "rubbish"])
    assert asker.main() == REFUSED


def test_a_checker_that_hangs_is_not_waited_for(asker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asker, "_TAKEN_WITHIN_S", 0.05)
    with pytest.raises(TimeoutError):
        asked(None, asker, monkeypatch)


def test_another_user_s_checker_is_not_believed(asker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(asker.os, "geteuid", lambda: own + 1)
    with pytest.raises(ValueError, match="another user"):
        asked(b".0 \0", asker, monkeypatch)


def asked(said: bytes | None, asker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> object:
    """What the asking program makes of these bytes; None: the other end is silent."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as name, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{name}/socket")
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                if said is None:
                    connection.recv(1000)
                    connection.recv(1000)  # until the other end gives up
                else:
                    with suppress(ConnectionError):
                        connection.sendall(said)
                        connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            return asker.ask(f"{name}/socket", ["validate", "file"])
        finally:
            thread.join()


def test_hostile_words_at_the_socket_end_nothing(answering: BoincProject) -> None:
    for words in (b"", b"\n", b"validate\n", b"\0\0\0\n", b"\xff" * 20_000, b"validate\0" + b"x" * 5000 + b"\n"):
        with connect(answering) as asking, suppress(ConnectionError):
            asking.sendall(words)
            asking.shutdown(socket.SHUT_WR)
            while asking.recv(4096):
                pass
    assert validated(answering, "rubbish").returncode == REFUSED


def test_a_bug_or_trouble_of_this_machine_refuses_nobody(
    project: BoincProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_runs: OpenedRuns, _file: object) -> Verdict:
        raise errors.pop()

    errors: list[Exception] = [ZeroDivisionError(), GridError("away"), MemoryError(), OSError(5, "I/O error")]
    monkeypatch.setattr("vcdl.boinc.daemons.checking_process.validate", fails)
    with closing(OpenedRuns(project)) as runs:
        for _ in range(4):
            assert judge(runs, Path("file")).code == LATER
    assert signal.alarm(0) == 0, "nothing is left that would kill the process later"


def test_the_daemon_keeps_its_processes_running_and_leaves_nothing(project: BoincProject) -> None:
    project.checker_socket.touch()  # of a daemon that was killed
    with closing(Checkers(project)) as checkers:
        assert project.checker_socket.stat().st_mode & 0o077 == 0
        checkers.run_once()
        first, second = checkers.processes  # two of the four validators of ours are enabled and here
        first.kill()
        first.wait()
        give_up_s = time.monotonic() + 60
        while first in checkers.processes or len(checkers.processes) < 2:
            assert time.monotonic() < give_up_s
            checkers.run_once()
            time.sleep(0.05)
        assert answers(project)
    assert second.poll() == 0
    assert not project.checker_socket.exists()


def answers(project: BoincProject) -> bool:
    with connect(project) as asking:
        asking.sendall(b"validate\0rubbish\n")
        return asking.recv(1) == b"."
