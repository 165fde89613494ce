"""The beginning of a run in a folder: nothing is left of one that is refused before its first subtask."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from vcdl.errors import VcdlError
from vcdl.run.folder import RunFolder


@contextmanager
def discarded_if_refused(folder: RunFolder, *, is_new: bool) -> Iterator[None]:
    """Remove the files of a run when the block raises a VcdlError or an OSError before the run is prepared.

    `is_new`: the folder itself was made for it, and goes, too. The caller holds the folder's RunLock.
    """
    try:
        yield
    except (VcdlError, OSError):
        if not folder.prepared_file.exists():
            _discard(folder, is_new)
        raise


def _discard(folder: RunFolder, is_new: bool) -> None:
    if is_new:
        shutil.rmtree(folder.path, ignore_errors=True)
        return
    for entry in folder.path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
