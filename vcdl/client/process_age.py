"""Measure the age of this process, which a task logs to show how much of its time is spent on training."""

import os
import time
from pathlib import Path

_IMPORTED_S = time.monotonic()


def process_age() -> str:
    """Return a text with the seconds since the process was started and the processor time of it and its children."""
    times = os.times()
    used_s = time.process_time() + times.children_user + times.children_system
    return f"{age_s():.2f} s ({used_s:.2f} s of processor time)"


def age_s() -> float:
    """Return seconds since this process was started, including its launcher if the system reports that (Linux)."""
    try:
        # Split after the last `)`: the process's name is in parentheses and may contain anything.
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED_S
    return up_s - started_ticks / os.sysconf("SC_CLK_TCK")
