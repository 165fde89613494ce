"""Uploads that are kept after they were applied: for a store that may lose its memory, and for replays."""

import os
import shutil
from pathlib import Path

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.run.folder import RunFolder


def conclude_upload(folder: RunFolder, workunit: str, version: int | None) -> None:
    """Remove an upload; it is kept under the version it made when the run keeps uploads. Raises RunFolderError."""
    upload = folder.uploads / f"{workunit}.h5"
    if version is not None and upload.exists():
        keep_upload(folder, upload, workunit, version)
    upload.unlink(missing_ok=True)


def keep_upload(folder: RunFolder, upload: Path, workunit: str, version: int, *, replace: bool = False) -> None:
    """Keep an upload for a store that may lose its memory; nothing in a run that keeps none.

    `replace`: it was folded in just now. Then a file of its name is of a fold that the store and the journal have
    forgotten. Raises RunFolderError.
    """
    kept = folder.kept_upload(version, workunit)
    if not folder.kept_uploads.is_dir():
        return
    with folder_errors(kept.parent):
        if kept.exists():
            if not replace or kept.samefile(upload):
                return
            kept.unlink()
        try:
            os.link(upload, kept)
            return
        except OSError:  # of another user, or on another disk
            pass
        with atomic_write(kept) as target:
            shutil.copyfile(upload, target)


def discard_kept_uploads(folder: RunFolder, up_to_version: int) -> None:
    """Remove the kept uploads that a snapshot of `up_to_version` on the disk has in it."""
    for path, version in folder.versions_of_kept_uploads():
        if version <= up_to_version:
            path.unlink(missing_ok=True)
