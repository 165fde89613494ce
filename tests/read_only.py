"""A folder that cannot be written: mounted read-only for root, who may write everywhere else; without rights for
others.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """The folder as a process sees it that may write nothing in it."""
    if os.geteuid() != 0:
        mode = folder.stat().st_mode
        folder.chmod(0o555)
        try:
            yield folder
        finally:
            folder.chmod(mode)
        return
    seen = folder.with_name(f"{folder.name}-read-only")
    seen.mkdir()
    for command in (["--bind", str(folder), str(seen)], ["-o", "remount,bind,ro", str(seen)]):
        if subprocess.run(["mount", *command], capture_output=True).returncode:
            pytest.skip("only root may mount a disk")
    try:
        yield seen
    finally:
        subprocess.run(["umount", "-l", str(seen)], check=True)
