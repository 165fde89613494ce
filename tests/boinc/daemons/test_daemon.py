"""How a daemon begins and ends, with work that only counts."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT
from vcdl.boinc.daemons.daemon import run_daemon
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import ExitCode, GridError, GridUnavailable, VcdlError


class Counting:
    """Rounds in which there is something to do, until one does what the test wants."""

    def __init__(self, project: BoincProject) -> None:
        self.project = project
        self.rounds = 0
        self.closed = False

    def run_once(self) -> bool:
        self.rounds += 1
        if self.rounds == 3:
            self.third()
        return True

    def third(self) -> None:
        self.project.stop_daemons.touch()

    def close(self) -> None:
        self.closed = True


class WithoutDatabase(Counting):
    error: VcdlError = GridUnavailable("away")

    def third(self) -> None:
        raise self.error

    def run_once(self) -> bool:
        if self.rounds == 4:
            self.project.stop_daemons.touch()
        return super().run_once()


class WithoutLogin(WithoutDatabase):
    error = GridError("the login was refused")


class NeverWell(Counting):
    """From one moment on told to end, as by bin/stop."""

    def run_once(self) -> bool:
        self.rounds += 1
        if self.rounds == 4:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        raise GridError("the column workunit.batch is missing")


class Busy(Counting):
    """One long call, as into Keras: no handler that is written in Python runs before it returns."""

    def run_once(self) -> bool:
        print("busy", flush=True)
        ctypes.PyDLL(None).sleep(60)
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "config.xml").write_text(
        "<boinc><config><master_url>http://x/</master_url><db_name>x</db_name></config></boinc>"
    )
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def run(kind: type[Counting], folder: Path, *arguments: str) -> tuple[Counting, ExitCode]:
    made: list[Counting] = []

    def begin(project: BoincProject) -> Counting:
        made.append(kind(project))
        return made[0]

    code = run_daemon("vcdl_test", "counts", begin, 0.01, [*arguments, "--project-dir", str(folder)])
    return made[0], code


@pytest.mark.parametrize(("kind", "rounds"), [(Counting, 3), (WithoutDatabase, 5), (WithoutLogin, 5)])
def test_it_ends_after_the_round_in_which_it_is_told_to(kind: type[Counting], rounds: int, folder: Path) -> None:
    work, code = run(kind, folder)
    assert (work.rounds, work.closed, code) == (rounds, True, ExitCode.OK)


@pytest.mark.process
def test_a_signal_ends_it_at_once_whatever_it_does(folder: Path) -> None:
    """bin/stop does not wait, and the next bin/start passes over a daemon whose lock is still held."""
    program = (
        "from tests.boinc.daemons.test_daemon import Busy, run_daemon\n"
        f"run_daemon('vcdl_test', 'is busy', Busy, 1.0, ['--project-dir', {str(folder)!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"busy\n"
        daemon.send_signal(signal.SIGHUP)
        assert daemon.wait(30) == -signal.SIGHUP


@pytest.mark.slow
def test_it_waits_longer_each_time_and_ends_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: (folder / "stop_daemons").touch())
    begin_s = time.monotonic()
    work, code = run(NeverWell, folder)
    took_s = time.monotonic() - begin_s
    signal.signal(signal.SIGALRM, before)
    assert (work.rounds, work.closed, code) == (4, True, ExitCode.OK)
    assert 0.2 + 0.4 + 0.8 < took_s < 0.2 + 0.4 + 0.8 + 1.6  # the last wait was cut short
    lines = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert [line.partition("] ")[2] for line in lines] == [
        f"the column workunit.batch is missing; trying again in {wait_s} s" for wait_s in ("0.2", "0.4", "0.8", "1.6")
    ]


def test_one_pass_is_one_round(folder: Path) -> None:
    work, code = run(Counting, folder, "--one_pass", "-d", "4")
    assert (work.rounds, work.closed, code) == (1, True, ExitCode.OK)


def test_one_pass_that_fails_says_so_by_its_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, code = run(NeverWell, folder, "--one_pass")
    assert (work.rounds, work.closed, code) == (1, True, ExitCode.SERVICE)
    assert capsys.readouterr().err.rstrip().endswith("the column workunit.batch is missing")


def test_a_folder_that_is_no_project_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_daemon("vcdl_test", "counts", Counting, 1.0, ["--project-dir", str(tmp_path)]) == ExitCode.SERVICE
    assert "no BOINC project" in capsys.readouterr().err


@pytest.mark.process
def test_the_numpy_of_a_daemon_has_one_thread() -> None:
    """On a busy machine several wait for each other, which costs twenty times as much."""
    code = (
        "import os, vcdl.boinc.daemons.assimilator, numpy as np; a = np.ones(1 << 20); a @ a; "
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "1\n"
