"""The real program `vcdl` in a process of its own, and what its runs leave in their folders."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from vcdl.journal.events import UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.wire.workunit import WorkunitName

TIMEOUT_S = 120.0


def environment() -> dict[str, str]:
    """Without what other tests have set in this process: who sets this variable sees what TensorFlow prints."""
    return {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}


def vcdl(
    *arguments: object, cwd: Path | None = None, timeout_s: float = 280, module: str = "vcdl"
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
        timeout=timeout_s, env=environment(),
    )  # fmt: skip


def vcdl_in_background(*arguments: object, module: str = "vcdl") -> "subprocess.Popen[str]":
    """Start a command."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )


def applied(folder: Path) -> list[UpdateApplied]:
    """The updates of a run, in the order of the journal."""
    if not (folder / "journal.db").exists():
        return []
    journal = Journal.at(folder / "journal.db")
    try:
        return [recorded.event for recorded in journal.read() if isinstance(recorded.event, UpdateApplied)]
    finally:
        journal.close()


def assert_every_shard_of_every_epoch_was_applied_once(folder: Path, epochs: int, shards: int) -> None:
    names = Counter(WorkunitName.parse(update.workunit).subtask for update in applied(folder))
    expected = {f"e{epoch:04d}_s{shard:03d}" for epoch in range(1, epochs + 1) for shard in range(shards)}
    assert set(names) == expected
    assert set(names.values()) == {1}
    assert sorted(update.version for update in applied(folder)) == list(range(1, epochs * shards + 1))


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {TIMEOUT_S:g} s in vain until {what}"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def workers(pid: int) -> list[int]:
    """The worker processes of a run."""
    return [child for child in children(pid) if "vcdl.client.worker" in command_line(child)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def none_alive(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def summary(folder: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return loaded
