"""What a killed process leaves of a file that it was writing."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from vcdl.files.atomic import temporary_name


@cache
def ended_pid() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def temporary_of(pid: int, path: Path) -> Path:
    """The name under which another process writes a file."""
    return path.with_name(temporary_name(path).name.replace(f".{os.getpid()}.", f".{pid}."))


def leave_half(path: Path) -> Path:
    """Leave what a killed process had written of a file."""
    left = temporary_of(ended_pid(), path)
    left.write_bytes(b"half")
    return left
