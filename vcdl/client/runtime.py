"""Unpack the packages of a Python that BOINC delivered, and remove old ones.

The first task on a host unpacks under a lock and renames the complete folder; the other tasks wait for the lock. A kill
leaves a folder with the suffix `.growing`, which the next task deletes. Runtimes whose archive BOINC has deleted are
deleted as well.
"""

import contextlib
import fcntl
import json
import logging
import lzma
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vcdl.client.resources import Shortage
from vcdl.errors import DISK_FULL, VcdlError

ARCHIVE_VARIABLE = "VCDL_RUNTIME_ARCHIVE"
"""The variable in which the launcher names the archive of this Python."""
MANIFEST = "runtime.json"
PACKAGES = "packages.tar.xz"
UNPACKED = ".unpacked"
_FREE_BYTES = 64 << 20
"""Free bytes that must remain on the disk once the packages are unpacked, so that a task can still write."""
_POLL_S = 0.2
"""Seconds between two attempts at the lock, so that a task starts soon after another one has unpacked Keras."""
_log = logging.getLogger(__name__)


class RuntimeUnusable(VcdlError):
    """Raised when the delivered Python cannot be used on this machine, or is damaged."""


def make_ready(prefix: Path | None = None) -> None:
    """Unpack a delivered Python's packages unless that is done, make them importable, and select their backend.

    Nothing happens in a Python that BOINC did not deliver.

    Args:
        prefix: The Python's folder; None for that of this process.

    Raises:
        RuntimeUnusable: This machine cannot use them, or they are damaged.
        Shortage: The disk is too full.
        OSError: They cannot be written.
    """
    prefix = prefix or Path(sys.prefix)
    try:
        manifest: dict[str, Any] = json.loads((prefix / MANIFEST).read_text())
    except FileNotFoundError:
        return
    if lacking := [name for name in manifest["processor_needs"] if name not in _processor_features(name)]:
        raise RuntimeUnusable(f"this computer's processor has no {', '.join(lacking).upper()}, which Keras needs")
    packages = prefix / manifest["folder"]
    archive = Path(os.environ.get(ARCHIVE_VARIABLE, ""))
    if not packages.is_dir():
        # Several tasks start simultaneously on a new host. The first one unpacks for all.
        with _alone(prefix / "lock"):
            if not packages.is_dir():
                _unpack(archive, packages, int(manifest["packages_bytes"]))
    if str(packages) not in sys.path:
        sys.path.append(str(packages))  # Python searched for it at its start
    os.environ["KERAS_BACKEND"] = manifest["backend"]
    if archive.is_file():
        _remove_old(archive.parent, prefix)


def _unpack(archive: Path, packages: Path, size: int) -> None:
    growing = packages.with_name(f"{packages.name}.growing")
    shutil.rmtree(growing, ignore_errors=True)
    free = shutil.disk_usage(packages.parent).free
    if free < size + _FREE_BYTES:
        raise Shortage(f"unpacking Keras takes {size >> 20} MB of disk, but only {free >> 20} MB are free")
    _log.info("unpacking Keras, once for all tasks: %d MB", size >> 20)
    begun_s = time.monotonic()
    try:
        with tarfile.open(archive, "r:") as outer:
            packed = outer.extractfile(PACKAGES)
            if packed is None:
                raise tarfile.ReadError(f"no {PACKAGES}")
            with packed, lzma.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|") as inner:
                inner.extraction_filter = getattr(tarfile, "data_filter", None)  # Pythons before 3.11.4 have none
                inner.extractall(growing)
        if hasattr(os, "sync"):
            os.sync()  # a power cut must not leave a folder of empty files
        # Rename the folder last: a folder of this name is complete, so no other task has to check it.
        growing.rename(packages)
    except (tarfile.TarError, lzma.LZMAError, EOFError, KeyError) as error:
        shutil.rmtree(growing, ignore_errors=True)
        raise RuntimeUnusable(f"{archive.name} is damaged ({error}): reset the project in the BOINC client") from None
    except OSError as error:
        shutil.rmtree(growing, ignore_errors=True)
        if error.errno in DISK_FULL:
            raise Shortage(f"unpacking Keras takes {size >> 20} MB of disk: {error.strerror}") from error
        raise
    _log.info("unpacked in %.0f s", time.monotonic() - begun_s)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for a lock on a file, and hold it within the block. The system releases it if the process is killed."""
    with path.open("ab") as file:
        while not _try_lock(file.fileno()):
            time.sleep(_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_old(project: Path, ours: Path) -> None:
    """Remove the runtimes whose archives BOINC has deleted: no task of the host can still use them.

    Args:
        project: The project's folder, which contains the archives.
        ours: This runtime, among the unpacked ones: in the project's folder, or in a container's volume.
    """
    for folder in ours.parent.glob(f"vcdl_runtime*{UNPACKED}"):
        if not (project / folder.name.removesuffix(UNPACKED)).exists() and folder.resolve() != ours.resolve():
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)
                _log.info("removed %s, which no task uses any more", folder.name)


def _processor_features(asked: str) -> set[str]:
    """Return the features of this processor, or `asked` if the system does not report them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {asked}
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return set(flags[0]) if flags else {asked}
