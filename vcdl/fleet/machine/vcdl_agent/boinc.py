"""The programs that the agent controls: the BOINC client through boinccmd, and systemd through systemctl."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .watches import logger

FINISH_NOW = "vcdl_finish_now"
"""File in the project's folder that makes every running subtask write its update and end (docs/boinc-client.md)."""
_TIMEOUT_S = 10.0


class BoincError(Exception):
    """The BOINC client does not answer, or reports an error."""


@dataclass(frozen=True)
class Task:
    """A task of the BOINC client, with the states as boinccmd prints them."""

    project: str
    name: str
    state: str
    """`downloading`, `downloaded`, `uploading`, `uploaded`, `aborted`, …"""
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
    """The BOINC client on this machine. boinccmd runs in the client's folder, which holds its password."""

    def __init__(self, boinccmd: tuple[str, ...], folder: Path) -> None:
        self._boinccmd, self._folder = boinccmd, folder

    def projects(self) -> dict[str, bool]:
        """Return the URL of each attached project, with whether the client may ask it for work."""
        rows = self._list("get_project_status")
        return {row["master URL"]: row["don't request more work"] != "yes" for row in rows}

    def tasks(self) -> list[Task]:
        """Return all tasks that are not yet reported."""
        rows = self._list("get_tasks")
        return [
            Task(row["project URL"], row["name"], row["state"], row["scheduler state"], row["ready to report"])
            for row in rows
        ]

    def command(self, *arguments: str) -> str:
        """Run boinccmd, for example with `--network_available`. Raises BoincError."""
        try:
            done = subprocess.run(
                [*self._boinccmd, *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, text=True, errors="replace",
            )  # fmt: skip
        except FileNotFoundError:
            return ""  # not installed yet: no project, no task, nothing to lose
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BoincError(f"boinccmd: {error}") from None
        if done.returncode:
            raise BoincError(f"boinccmd {arguments[0]}: {done.stdout.strip()[-200:]}")
        return done.stdout

    def update(self, projects: Iterable[str]) -> None:
        """Have the client contact these projects now, to report and to ask for work."""
        for url in projects:
            self.command("--project", url, "update")

    def finish_tasks(self) -> None:
        """Write FINISH_NOW, which makes running subtasks upload what is trained and end. Raises OSError."""
        for folder in self._folder.glob("projects/*/"):
            (folder / FINISH_NOW).touch()

    def resume_tasks(self) -> None:
        """Remove FINISH_NOW, so that new subtasks train in full. Raises OSError."""
        for path in self._folder.glob(f"projects/*/{FINISH_NOW}"):
            path.unlink()

    def _list(self, what: str) -> list[defaultdict[str, str]]:
        blocks = re.split(r"^\d+\) -+$", self.command(f"--{what}"), flags=re.MULTILINE)[1:]
        return [defaultdict(str, re.findall(r"^ +([^:]+): (.*)$", block, re.MULTILINE)) for block in blocks]


def systemctl(command: str) -> str:
    """Return the answer of `systemctl COMMAND`; empty, with a line in the log, if it fails."""
    try:
        done = subprocess.run(["systemctl", command], stdout=subprocess.PIPE, timeout=_TIMEOUT_S, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.error("systemctl %s: %s", command, error)
        return ""
    return done.stdout.strip()
