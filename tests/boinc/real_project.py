"""A real BOINC project, which VCDL_BOINC_PROJECT_DIR names: VCDL is put into it for some tests and taken out again.

It may be empty, as make_project leaves it, with its web server and its database running. The tests run as its user.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.processes import is_running
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.run.folder import RunFolder

VARIABLE = "VCDL_BOINC_PROJECT_DIR"
ON_A_PROJECT = (
    pytest.mark.boinc,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no BOINC project"),
)
"""The markers of the tests that need it."""
TIMEOUT_S = 400.0
EMAIL, _PASSWORD = "vcdl-test@example.org", "only for tests"
_TABLES = ("app", "app_version", "workunit", "result", "host_app_version", "msg_to_host", "assignment")
_EDITED = (
    "config.xml", "project.xml", "config_aux.xml", "plan_class_spec.xml", "html/project/project.inc",
    "html/project/project_description.php",
)  # fmt: skip


@dataclass(frozen=True)
class Traces:
    """What an install and its jobs may leave in a project."""

    rows: dict[str, int]
    edited: dict[str, bytes | None]
    files: frozenset[str]
    """Files with our name anywhere, and all staged and uploaded ones."""


class RealProject:
    """The project, by its own programs and by `vcdl`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.project = BoincProject.at(path)

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator["RealProject"]:
        """With VCDL in it and its daemons running; at the end nothing of VCDL may be left."""
        real = cls(Path(os.environ[VARIABLE]))
        real.account_key()  # an empty project has no account
        before = real.traces()
        (real.path / "keys" / "code_sign_private").chmod(0o600)
        real.vcdl("project", "install")
        real.start()
        try:
            yield real
        finally:
            real.stop()
            real.uninstall()
        assert real.traces() == before

    # -- its programs

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`vcdl` on this project."""
        command = [sys.executable, "-m", "vcdl", *arguments, "--project-dir", str(self.path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def vcdl(self, *arguments: str) -> str:
        """The output of `vcdl` on this project, which must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def uninstall(self) -> None:
        self.vcdl("project", "uninstall", "--force", "--delete-runs", "--delete-rows")

    def start(self, *options: str) -> None:
        self._bin("start", *options)

    def stop(self) -> None:
        self._bin("stop")

    def _bin(self, program: str, *options: str) -> None:
        def has_run() -> bool:  # it ends with 1 while cron's own call runs
            return (
                subprocess.run([self.project.bin / program, *options], cwd=self.path, capture_output=True).returncode
                == 0
            )

        wait(has_run, f"bin/{program} has run", 60)

    # -- what is in it

    def doctor(self, check: str) -> str:
        """What doctor says in the lines of a check."""
        said = self.run("project", "doctor").stdout
        return "\n".join(line for line in said.splitlines() if f" {check}: " in line)

    def down(self) -> list[str]:
        """The daemons that do not run."""
        daemons = ServerConfig.at(self.path).daemons
        return [each.name for each in daemons if not each.disabled and not is_running(self.project, each)]

    def pid(self, daemon: str) -> int:
        return int((self.path / f"pid_{self.project.host}" / f"{daemon}.pid").read_text())

    def rows(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        database = BoincDatabase(self.project)
        try:
            return [*database.execute(statement, *arguments)]
        finally:
            database.close()

    def staged(self) -> list[str]:
        """Ours in download/, below its fan-out folders."""
        return [path.name for path in self.project.download_dir.glob("*/*")]

    def traces(self) -> Traces:
        top = self.path
        files = {path for folder in ("upload", "download") for path in (top / folder).rglob("*") if path.is_file()}
        files |= {path for path in top.rglob("*vcdl*") if "__pycache__" not in path.parts}
        return Traces(
            {table: int(str(self.rows(f"SELECT COUNT(*) FROM {table}")[0][0])) for table in _TABLES},
            {name: (top / name).read_bytes() if (top / name).exists() else None for name in _EDITED},
            frozenset(str(path.relative_to(top)) for path in files),
        )

    # -- jobs and clients

    def submit(self, job: Path, *more: str) -> RunFolder:
        return self.project.run_folder(self.vcdl("submit", str(job), *more).split(":")[0].removeprefix("submitted "))

    def client(self, folder: Path, cpus: int = 2, email: str = EMAIL, **environment: str) -> BoincClient:
        python = {"VCDL_PYTHON": sys.executable}
        return BoincClient(folder, self.project.master_url, self.account_key(email), cpus, {**python, **environment})

    def account_key(self, email: str = EMAIL) -> str:
        """The key of an account of the tests, which is made, or asked for when it is there."""
        secret = hashlib.md5(f"{_PASSWORD}{email}".encode(), usedforsecurity=False).hexdigest()
        query = urllib.parse.urlencode(
            {"email_addr": email, "passwd_hash": secret, "user_name": email.partition("@")[0]}
        )
        for page in ("create_account.php", "lookup_account.php"):
            with urllib.request.urlopen(f"{self.project.master_url.rstrip('/')}/{page}?{query}") as reply:
                said = reply.read().decode(errors="replace")
            if key := re.search(r"<authenticator>(\w+)</authenticator>", said):
                return key[1]
        raise AssertionError(f"no account: {said}")


def wait(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain until {what}"
        time.sleep(0.5)
