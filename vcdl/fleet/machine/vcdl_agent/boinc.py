"""The BOINC client on this machine, asked and told through its own boinccmd."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FINISH_NOW = "vcdl_finish_now"
"""In the project's folder: every running subtask writes what it has and ends (docs/boinc-client.md)."""
_TIMEOUT_S = 10.0


class BoincError(Exception):
    """The BOINC client does not answer, or not as it should."""


@dataclass(frozen=True)
class Task:
    """A task of the BOINC client."""

    project: str
    name: str
    state: str
    """`downloading`, `downloaded`, `uploading`, `uploaded`, `aborted` and others"""
    schedule: str
    """`uninitialized`: it was never started."""
    ready: str
    """`yes`: it only waits to be reported."""

    @property
    def is_waiting(self) -> bool:
        return self.state in ("new", "downloading", "downloaded") and self.schedule == "uninitialized"

    @property
    def is_running(self) -> bool:
        return self.state == "downloaded" and self.schedule != "uninitialized"


class Boinc:
    """The BOINC client on this machine, through boinccmd in its folder, where the password is."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self._command, self._folder = command, folder

    def projects(self) -> dict[str, bool]:
        """The URL of each project, and whether it may ask for work."""
        rows = self._list("get_project_status")
        return {row["master URL"]: row["don't request more work"] != "yes" for row in rows}

    def tasks(self) -> list[Task]:
        """All that it has not yet reported."""
        rows = self._list("get_tasks")
        return [
            Task(row["project URL"], row["name"], row["state"], row["scheduler state"], row["ready to report"])
            for row in rows
        ]

    def tell(self, *arguments: str) -> None:
        """Such as `--network_available`."""
        self._run(*arguments)

    def update(self, projects: Iterable[str]) -> None:
        """Have it speak with them now: report, and ask for work."""
        for url in projects:
            self._run("--project", url, "update")

    def ask_to_finish(self) -> None:
        """Leave the file that running subtasks look for. Raises OSError."""
        for folder in self._folder.glob("projects/*/"):
            (folder / FINISH_NOW).touch()

    def let_go_on(self) -> None:
        """Remove it. Raises OSError."""
        for path in self._folder.glob(f"projects/*/{FINISH_NOW}"):
            path.unlink()

    def _list(self, what: str) -> list[defaultdict[str, str]]:
        blocks = re.split(r"^\d+\) -+$", self._run(f"--{what}"), flags=re.MULTILINE)[1:]
        return [defaultdict(str, re.findall(r"^ +([^:]+): (.*)$", block, re.MULTILINE)) for block in blocks]

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [*self._command, *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, text=True, errors="replace",
            )  # fmt: skip
        except FileNotFoundError:
            return ""  # not installed yet: no project, no task, nothing to lose
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BoincError(f"boinccmd: {error}") from None
        if done.returncode:
            raise BoincError(f"boinccmd {arguments[0]}: {done.stdout.strip()[-200:]}")
        return done.stdout
