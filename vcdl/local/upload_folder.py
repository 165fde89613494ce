"""Claim waiting uploads in a folder that any number of servers share.

A server claims an upload by a lock on its file. When a server dies, the kernel releases its locks, and other servers
can claim its uploads.
"""

import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from vcdl.errors import WorkunitError
from vcdl.files.lock import FileLock
from vcdl.loop.grid import Results
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import conclude_upload
from vcdl.run.staging import Uploaded
from vcdl.wire.workunit import WorkunitName

_CLAIMED_AT_ONCE = 8
"""Uploads claimed at a time: as many as the assimilator folds together, since more would be kept from other servers."""


class UploadFolder(Results):
    """The uploads of a run, claimed by one parameter server.

    Each claimed upload is locked until `done`, so that no other server applies it too. If the server is killed, the
    kernel releases its locks, and another server claims the uploads.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._claimed: dict[str, FileLock] = {}
        """Name of a claimed workunit → the lock on its upload."""

    def claim(self) -> list[Uploaded]:
        """Lock the oldest uploads that no other server has locked; return all that this server holds, at most eight.

        Uploads of earlier calls are returned again until `done`. A file that is no upload is moved to the folder
        `quarantine`.
        """
        claimed: list[Uploaded] = []
        for path in _by_age(self._folder.waiting_uploads()):
            if len(claimed) == _CLAIMED_AT_ONCE:
                break
            if not _is_upload(path):
                _quarantine(self._folder, path)
            elif path.stem in self._claimed or self._lock(path):
                found = path.stat()  # its inode changed last when it was moved here
                claimed.append(Uploaded(path.stem, path, found.st_size, received_s=found.st_ctime))
        return claimed

    def done(self, workunit: str, version: int | None = None) -> None:
        """Delete the file of an upload that is applied or refused, or keep it in a run that keeps uploads; unlock it.

        Args:
            workunit: The workunit.
            version: The version that the upload created; None if it created none, so that its file is deleted.
        """
        conclude_upload(self._folder, workunit, version)
        lock = self._claimed.pop(workunit, None)
        if lock is not None:
            lock.close()

    def _lock(self, path: Path) -> bool:
        try:
            lock = FileLock(path, existing=True)
        except FileNotFoundError:
            return False
        if not lock.acquire(wait_s=0) or not path.exists():  # another server has claimed or concluded it
            lock.close()
            return False
        self._claimed[path.stem] = lock
        return True


def quarantine_orphans(folder: RunFolder) -> None:
    """Move files that are not uploads of a workunit to the folder `quarantine`, so that the others can be applied."""
    for path in folder.waiting_uploads():
        if not _is_upload(path):
            _quarantine(folder, path)


def _quarantine(folder: RunFolder, path: Path) -> None:
    aside = folder.path / "quarantine"
    try:
        aside.mkdir(exist_ok=True)
        path.replace(aside / path.name)
    except OSError:  # another server has moved it, or the folder is read-only and the file is skipped each time
        return
    print(f"{path.name!a} is not an upload of a workunit: it is in {aside} now", file=sys.stderr, flush=True)


def _is_upload(path: Path) -> bool:
    try:
        WorkunitName.parse(path.stem)
    except WorkunitError:
        return False
    try:
        return stat.S_ISREG(path.lstat().st_mode)  # a link may lead anywhere, or to itself
    except FileNotFoundError:  # taken by another server meanwhile
        return True


def _by_age(uploads: Iterable[Path]) -> list[Path]:
    aged = []
    for path in uploads:
        try:
            aged.append((path.lstat().st_mtime_ns, path))
        except FileNotFoundError:
            continue
    return [path for _, path in sorted(aged)]
