"""Processor time and memory of a project's server, process by process, from /proc."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError

_PROC = Path("/proc")
_WEB_SERVERS = frozenset({"apache2", "httpd", "nginx", "lighttpd", "php-fpm"})
DATABASE, WEB, BENCH = "database", "web server", "simulated hosts"


@dataclass(frozen=True)
class Used:
    """Processor time since its start, of a process and all that it has started, and memory now."""

    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True)
class _Process:
    name: str
    parent: int
    cpu_s: float
    memory_bytes: int


class ServerProcesses:
    """The processes of one project's server on this machine."""

    def __init__(self, project: BoincProject, database: BoincDatabase) -> None:
        self._pids = project.path / f"pid_{project.host}"
        self._database_pid = _database_pid(database)

    def used(self) -> dict[str, Used]:
        """By daemon, for the database, for each web server of this machine, and for this process."""
        processes = dict(_processes())
        below: dict[int, list[int]] = defaultdict(list)
        for pid, process in processes.items():
            below[process.parent].append(pid)
        roots = {name: pid for name, pid in self._daemons() if pid in processes}
        roots |= {BENCH: os.getpid()}
        if self._database_pid in processes:
            roots[DATABASE] = self._database_pid
        for pid, process in processes.items():
            parent = processes.get(process.parent)
            if process.name in _WEB_SERVERS and (parent is None or parent.name != process.name):
                roots[f"{WEB} {pid}"] = pid
        return {name: _sum(pid, processes, below) for name, pid in roots.items()}

    def _daemons(self) -> Iterator[tuple[str, int]]:
        for file in self._pids.glob("*.pid"):
            with suppress(OSError, ValueError):
                yield file.stem, int(file.read_text())


def machine_busy_s() -> float:
    """Processor time of this machine since its start, without idling, over all cores."""
    ticks = [int(word) for word in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _sum(root: int, processes: dict[int, _Process], below: dict[int, list[int]]) -> Used:
    cpu_s, memory_bytes, left = 0.0, 0, [root]
    while left:
        pid = left.pop()
        cpu_s += processes[pid].cpu_s
        memory_bytes += processes[pid].memory_bytes
        left += below[pid]
    return Used(cpu_s, memory_bytes)


def _processes() -> Iterator[tuple[int, _Process]]:
    tick_s, page_bytes = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
                words = rest.split()
                cpu_s = sum(map(int, words[11:15])) * tick_s
                yield int(folder.name), _Process(name, int(words[1]), cpu_s, int(words[21]) * page_bytes)


def _database_pid(database: BoincDatabase) -> int:
    """The database's process; 0 when it is on another machine, or does not say."""
    with suppress(GridError, OSError, ValueError):
        path, folder = database.execute("SELECT @@pid_file, @@datadir")[0]
        return int(Path(folder, path).read_text())
    return 0
