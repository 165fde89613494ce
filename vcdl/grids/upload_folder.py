"""Uploads that wait in a folder, shared by any number of parameter servers: each is claimed by a lock on its file.

The kernel lets go of the lock when the server that holds it dies, however it dies, and another one takes the upload. Nothing is numbered,
moved or timed out.
"""

import fcntl
import os
import shutil
import sys
from pathlib import Path

from vcdl.errors import WorkunitError
from vcdl.grids.base import Results, Uploaded
from vcdl.run.folder import RunFolder
from vcdl.whole_file import whole_file
from vcdl.workunit import WorkunitName

_CLAIMED_AT_ONCE = 8


class UploadFolder(Results):
    """One server's view of the uploads of a run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._claimed: dict[str, int] = {}
        """Workunit → descriptor that holds the lock."""

    def claim(self) -> list[Uploaded]:
        """The oldest uploads that no other server works on, and those claimed and not `done` yet."""
        claimed: list[Uploaded] = []
        for path in _by_age(self._folder.uploads):
            if len(claimed) == _CLAIMED_AT_ONCE:
                break
            if not _is_upload(path):
                _set_aside(self._folder, path)
            elif path.stem in self._claimed or self._lock(path):
                claimed.append(Uploaded(path.stem, path, path.stat().st_size))
        return claimed

    def done(self, workunit: str, version: int | None = None) -> None:
        """It is in store and journal; kept when it made a `version` that is not in a snapshot yet."""
        conclude_upload(self._folder, workunit, version)
        descriptor = self._claimed.pop(workunit, None)
        if descriptor is not None:
            os.close(descriptor)

    def _lock(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if not path.exists():  # done by another server between our look and our lock
            os.close(descriptor)
            return False
        self._claimed[path.stem] = descriptor
        return True


def set_strays_aside(folder: RunFolder) -> None:
    """Move what is no upload of a workunit out of the way: whatever lies in the folder, the others are assimilated."""
    for path in folder.uploads.glob("*.h5"):
        if not _is_upload(path):
            _set_aside(folder, path)


def _set_aside(folder: RunFolder, path: Path) -> None:
    aside = folder.path / "set_aside"
    try:
        aside.mkdir(exist_ok=True)
        path.replace(aside / path.name)
    except OSError:  # another server was faster, or the folder is not ours to change: it is passed over again and again
        return
    print(f"{path.name!a} is no upload of a workunit: it is in {aside} now", file=sys.stderr, flush=True)


def _is_upload(path: Path) -> bool:
    try:
        WorkunitName.parse(path.stem)
    except WorkunitError:
        return False
    return path.is_file() or not path.exists()  # taken by another server meanwhile


def conclude_upload(folder: RunFolder, workunit: str, version: int | None) -> None:
    """Remove an upload; it is kept under the version it made when the run keeps uploads. Raises RunFolderError."""
    upload = folder.uploads / f"{workunit}.h5"
    if version is not None and upload.exists():
        keep_upload(folder, upload, workunit, version)
    upload.unlink(missing_ok=True)


def keep_upload(folder: RunFolder, upload: Path, workunit: str, version: int) -> None:
    """Keep an upload for a store that may lose its memory; nothing in a run that keeps none. Raises RunFolderError."""
    kept = folder.kept_upload(version, workunit)
    if folder.kept_uploads.is_dir() and not kept.exists():
        with whole_file(kept) as target:
            target.unlink(missing_ok=True)  # half a copy of a process that was killed
            try:
                os.link(upload, target)
            except OSError:  # of another user, or on another disk
                shutil.copyfile(upload, target)


def discard_kept_uploads(folder: RunFolder, up_to_version: int) -> None:
    """A snapshot of `up_to_version` is on disk: what is in it need not be folded again."""
    if folder.kept_uploads.is_dir():
        for path in folder.kept_uploads.glob("v*.h5"):
            if int(path.name.partition("_")[0].removeprefix("v")) <= up_to_version:
                path.unlink(missing_ok=True)


def _by_age(uploads: Path) -> list[Path]:
    aged = []
    for path in uploads.glob("*.h5"):
        try:
            aged.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            continue
    return [path for _, path in sorted(aged)]
