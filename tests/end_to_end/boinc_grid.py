"""A project into which VCDL was installed, with its real daemons and stores, and a stand-in for BOINC's server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.private_servers import PrivateServer
from tests.boinc.standin import Database, StandinProject
from tests.store_servers import start_mariadb, start_redis
from vcdl.report.measures import Report
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report

DAEMONS = ("vcdl_work_generator", "vcdl_assimilator", "vcdl_evaluator")
TIMEOUT_S = 200.0


@dataclass
class Grid:
    """A project into which VCDL was installed, with its daemons as bin/start runs them."""

    project: StandinProject
    mariadb: PrivateServer
    redis: PrivateServer
    _daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def vcdl(self, *arguments: str) -> str:
        """Run a command; its output."""
        done = subprocess.run(
            [sys.executable, "-m", "vcdl", *arguments, "--project-dir", str(self.project.path)],
            capture_output=True,
            text=True,
            env={**os.environ, **self.project.environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str) -> None:
        log = (self.project.path / f"{name}.log").open("ab")
        self._daemons[name] = subprocess.Popen(
            [self.project.path / "bin" / name, "-d", "3"],
            cwd=self.project.working_folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **self.project.environment},
        )

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        daemon = self._daemons.pop(name)
        daemon.send_signal(number)
        return daemon.wait(timeout=60)

    def signal(self, name: str, number: int) -> None:
        self._daemons[name].send_signal(number)

    def close(self) -> None:
        for name in [*self._daemons]:
            self.kill(name)

    def run(self, job: str) -> RunFolder:
        return RunFolder(self.project.path / "vcdl" / "runs" / job)

    def report(self, job: str) -> Report:
        return read_report(self.run(job))

    def staged(self) -> list[str]:
        download = self.project.path / "download"
        return [path.name for path in download.rglob("*") if path.is_file() and path.parent != download]


@contextmanager
def a_grid(folder: Path, *redis_options: str) -> Iterator[Grid]:
    with ExitStack() as closing:
        mariadb = closing.enter_context(start_mariadb(folder))
        redis = closing.enter_context(start_redis(folder, *redis_options))
        project = StandinProject.make(folder / "project", Database.of(mariadb))
        grid = Grid(project, mariadb, redis)
        closing.callback(grid.close)
        grid.vcdl("project", "install", "--redis", redis.url)
        yield grid


def wait(condition: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain until {what}"
        time.sleep(0.2)
