"""The end of a process, in words: what it says of memory that ran out."""

import signal
from pathlib import Path

from vcdl.client.memory import available_memory_bytes, number_in
from vcdl.errors import ExitCode
from vcdl.report.wording import size


def how_it_died(status: int, peak_bytes: int | None = None) -> str:
    """The words for the exit status of a child, negative for a signal; `peak_bytes`: the most memory it had."""
    had = f" it had {size(peak_bytes)}," if peak_bytes else ""
    available_bytes = available_memory_bytes()
    left = f"{had} {size(available_bytes)} are free now" if available_bytes is not None else had.rstrip(",")
    if status == ExitCode.MEMORY:
        return f"out of memory:{left}".rstrip(":")
    if status == -signal.SIGKILL:
        return f"killed by signal 9, as Linux does when memory runs out:{left}".rstrip(":")
    if status == -signal.SIGABRT:
        return f"aborted by signal 6, as libraries do when memory runs out:{left}".rstrip(":")
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def peak_bytes_of(pid: int) -> int | None:
    """The most memory that a running process has had at once; None where the system does not say."""
    peak_kib = number_in(Path(f"/proc/{pid}/status"), "VmHWM:")
    return None if peak_kib is None else 1024 * peak_kib
