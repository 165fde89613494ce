"""Keep the programs that JAX compiles for later tasks, by a hash of everything that they depend on.

A task works on links in its slot, or on copies where links are impossible, and adds new programs to the cache at its
end. So no task ever reads half a program.
"""

import contextlib
import errno
import os
import shutil
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from vcdl.files.atomic import whole_file

KEPT_FOLDER = "vcdl_compiled"
"""The folder of cached programs, inside the folder that persists between tasks."""
_SLOT_FOLDER = "compiled"
_SUFFIX = "-cache"
_KEPT_BYTES = 32 << 20
_KEPT_S = 14 * 86400.0
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class CompiledPrograms:
    """The programs that JAX has compiled for one project's tasks. Errors of the disk are ignored: they only cost time.

    Call `take` before JAX is imported, and `hand_over` after a finished task.
    """

    def __init__(self, slot: Path, kept: Path) -> None:
        self._own, self._kept = slot / _SLOT_FOLDER, kept / KEPT_FOLDER

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that make JAX use the cache; it reads them when it is imported."""
        return {
            "JAX_COMPILATION_CACHE_DIR": str(self._own),
            # Keep all programs: by default JAX keeps only those that took long to compile, and a task would compile its
            # many small ones again at each start.
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    def take(self) -> None:
        """Link the programs of earlier tasks into the slot, after deleting what an earlier process left in it."""
        # JAX writes an entry in place, so a killed process may have left half a program.
        shutil.rmtree(self._own, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._own.mkdir()
            for path in self._kept.glob(f"*{_SUFFIX}"):
                _link(path, self._own / path.name)

    def hand_over(self) -> None:
        """Add this task's programs to the cache, and delete the oldest above 32 MiB and those older than 14 days."""
        with contextlib.suppress(OSError):
            programs = list(self._own.glob(f"*{_SUFFIX}"))
            if programs:  # other backends make none
                self._kept.mkdir(exist_ok=True)
            for path in programs:
                kept = self._kept / path.name
                # The name is a hash of everything that a program depends on, so an existing file is the same program.
                if not kept.exists() and _is_whole(path):
                    with contextlib.suppress(FileExistsError):
                        _link(path, kept)
            self._sweep()

    def _sweep(self) -> None:
        kept_bytes = 0
        # Keep the newest: no task needs the programs of a job that has ended.
        for made_s, size_bytes, path in sorted(map(_stat_file, self._kept.glob(f"*{_SUFFIX}")), reverse=True):
            kept_bytes += size_bytes
            if kept_bytes > _KEPT_BYTES or time.time() - made_s > _KEPT_S:
                path.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Link a file to a second name; on another file system, as in a container, copy it.

    Raises:
        OSError: Neither is possible.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with whole_file(target) as copy:
            shutil.copyfile(source, copy)


def _is_whole(path: Path) -> bool:
    """Return whether a compiled program was written completely.

    On a full disk JAX leaves a part of a program and never rewrites it. A program compressed by zstandard is assumed to
    be complete: delivered Pythons have only zlib.
    """
    content = path.read_bytes()
    if content[:4] == _ZSTANDARD:
        return True
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True


def _stat_file(path: Path) -> tuple[float, int, Path]:
    found = path.stat()
    return found.st_mtime, found.st_size, path
