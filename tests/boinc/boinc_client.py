"""Debian's real BOINC client with a data folder of its own, spoken to through boinccmd over a socket in that folder.

It runs beside any other client of the machine, as whoever runs the test. Nothing of it outlives the `with` block.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.store_servers import needs

TIMEOUT_S = 120.0
_PREFERENCES = {
    "run_on_batteries": 1, "run_if_user_active": 1, "suspend_cpu_usage": 0, "work_buf_min_days": 0,
    "work_buf_additional_days": 0, "disk_interval": 1, "cpu_usage_limit": 100, "ram_max_used_busy_pct": 90,
    "ram_max_used_idle_pct": 90, "disk_max_used_pct": 100, "disk_min_free_gb": 0, "leave_apps_in_memory": 1,
}  # fmt: skip
_OPTIONS = {
    "skip_cpu_benchmarks": 1, "no_info_fetch": 1, "report_results_immediately": 1, "max_file_xfers": 8,
    "max_file_xfers_per_project": 8,
}  # fmt: skip
ARGUMENTS = (
    "--gui_rpc_unix_domain", "--allow_multiple_clients", "--insecure", "--no_gpus", "--no_priority_change",
    # ⚠ A task that fails, or a request that does, keeps the client from the project for a minute and more.
    "--sched_retry_delay_min", "1", "--sched_retry_delay_max", "2", "--pers_retry_delay_min", "1",
    "--pers_retry_delay_max", "2",
)  # fmt: skip
_ASK_EVERY_S = 5.0
_LOGGED = ("task", "file_xfer", "sched_ops", "task_debug", "cpu_sched", "checkpoint_debug")


@dataclass(frozen=True)
class Task:
    """A task as `boinccmd --get_tasks` shows it."""

    name: str
    state: str
    """`downloading`, `downloaded`, `uploading`, `uploaded`, `compute error`, `aborted`, …"""
    active: str
    """`EXECUTING`, `SUSPENDED`, `UNINITIALIZED` (not running), …"""
    fraction: float
    checkpoint_cpu_s: float
    exit_status: int

    @property
    def executing(self) -> bool:
        return self.active == "EXECUTING"


class BoincClient:
    """A client attached to one project; `cpus` tasks run at a time, with `environment` besides the test's own."""

    arguments: tuple[str, ...] = ARGUMENTS

    def __init__(
        self, folder: Path, url: str, account_key: str, cpus: int = 1, environment: Mapping[str, str] | None = None
    ) -> None:
        needs("boinc")
        needs("boinccmd")
        self.folder = folder
        self._url = url
        self._environment = {**os.environ, **(environment or {})}
        self._attach = ["--attach_project", url, account_key]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        folder.mkdir(parents=True)
        options = {**_OPTIONS, "ncpus": cpus}
        _write_xml(
            folder / "cc_config.xml", {"cc_config": {"log_flags": dict.fromkeys(_LOGGED, 1), "options": options}}
        )
        _write_xml(folder / "global_prefs_override.xml", {"global_preferences": _PREFERENCES})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.kill()
        if kind is not None:
            print(f"--- the client's log ---\n{self.log[-8000:]}")

    # -- its life

    def start(self) -> None:
        """Start it on what is in its folder, and wait until it answers."""
        assert self._process is None, "the client is running"
        self._log = (self.folder / "client.log").open("ab")
        self._process = subprocess.Popen(
            ["boinc", "--dir", str(self.folder), *self.arguments, *self._attach], stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log, env=self._environment, start_new_session=True,
        )  # fmt: skip
        self._attach = []
        try:
            self.wait_until(lambda: self._answers("--get_cc_status"), "the client answers")
        except BaseException:
            self.kill()
            raise

    def quit(self) -> None:
        """Ask it to end, as at a shutdown: tasks get time for a checkpoint."""
        self.command("--quit")
        assert self._process is not None
        self._process.wait(TIMEOUT_S)
        self._forget()

    def kill(self, tasks_too: bool = True) -> None:
        """SIGKILL, by default its tasks too: as when a machine loses its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()
        if tasks_too:
            for pid in self.task_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def task_pids(self) -> list[int]:
        """Processes of tasks: those that work in a slot."""
        return [pid for pid, folder in _processes() if (self.folder / "slots").resolve() in folder.parents]

    # -- what it is told

    def command(self, *arguments: str) -> str:
        """Run boinccmd; its output."""
        done = subprocess.run(
            ["boinccmd", "--unix_domain", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"boinccmd {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def update(self) -> None:
        """Ask the project now, whatever the client waits for."""
        self.command("--project", self._url, "update")

    def suspend(self, task: str) -> None:
        self.command("--task", self._url, task, "suspend")

    def resume(self, task: str) -> None:
        self.command("--task", self._url, task, "resume")

    def abort(self, task: str) -> None:
        self.command("--task", self._url, task, "abort")

    # -- what it says

    def tasks(self) -> dict[str, Task]:
        """What the client has, by result name."""
        blocks = re.split(r"^\d+\) -+$", self.command("--get_tasks"), flags=re.MULTILINE)[1:]
        fields = [dict(re.findall(r"^ +([^:]+): (.*)$", block, re.MULTILINE)) for block in blocks]
        return {
            each["name"]: Task(
                name=each["name"],
                state=each["state"],
                active=each.get("active_task_state", ""),
                fraction=float(each.get("fraction done", "0")),
                checkpoint_cpu_s=float(each.get("CPU time at last checkpoint", "0")),
                exit_status=int(each.get("exit_status", "0")),
            )
            for each in fields
        }

    @property
    def project_folder(self) -> Path:
        """Where the client keeps the project's files."""
        (folder,) = self.folder.glob("projects/*")
        return folder

    @property
    def files(self) -> set[str]:
        """Names of the files in the project's folder."""
        return {path.name for path in self.project_folder.iterdir()}

    @property
    def log(self) -> str:
        return (self.folder / "client.log").read_text(errors="replace")

    def wait_until(
        self, condition: Callable[[], object], what: str, *, timeout_s: float = TIMEOUT_S, asking: bool = False
    ) -> None:
        """Look ten times a second, `asking` the project every few seconds; fails when the client ended or time
        is up.
        """
        began_s = asked_s = time.monotonic()
        while not condition():
            ended = self._process is not None and self._process.poll() is not None
            assert not ended, f"the client ended before {what}"
            now_s = time.monotonic()
            assert now_s < began_s + timeout_s, f"waited {timeout_s:g} s in vain until {what}"
            if asking and now_s > asked_s + _ASK_EVERY_S:
                asked_s = now_s
                self.update()
            time.sleep(0.1)

    def _answers(self, command: str) -> bool:
        return (
            subprocess.run(["boinccmd", "--unix_domain", command], cwd=self.folder, capture_output=True).returncode == 0
        )

    def _forget(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None


def _processes() -> Iterator[tuple[int, Path]]:
    """Process ids with the folders they work in."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), Path(os.readlink(entry / "cwd"))


def _write_xml(path: Path, content: dict[str, object]) -> None:
    path.write_text(_xml(content))


def _xml(content: object) -> str:
    if not isinstance(content, dict):
        return str(content)
    return "".join(f"<{name}>{_xml(value)}</{name}>\n" for name, value in content.items())
